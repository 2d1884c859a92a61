"""Controllers start without the planner's libraries: they take 30 MB, and a cluster may never have a run."""

import subprocess
import sys

_SCRIPT = "import sys, gkm_operator.main, gkm_operator.controllers; print({'numpy', 'highspy'} & set(sys.modules))"


def test_controllers_start_without_numpy_and_highs() -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
