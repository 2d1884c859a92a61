"""Code that mounts, run in a mount namespace of its own, with the helpers below and the `mount` of its test file."""

import sys
import textwrap
from pathlib import Path

from support.csi.namespaces import private_namespace

TESTS = Path(__file__).parents[2]
BEGINNING = """
import errno, os, sys
from pathlib import Path
from gkm.mounts import mountinfo, overlay, safe_open, syscalls, targets
from gkm.mounts.mountinfo import Mark, marked_mounts

root = Path(sys.argv[1])
target = root / "pods" / "p" / "t"

def mounts():
    return [found for found in mountinfo.read() if found.point.startswith(str(root))]

def unmount_target():
    with targets.open_target(root, target) as opened:
        return opened.unmount()

def code_of(call):
    try:
        call()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "nothing"
"""


def inside(tmp_path: Path, prelude: str, code: str) -> None:
    """Run `prelude` and `code` in a mount namespace of its own, in which a relative PYTHONPATH leads nowhere."""
    found = f"import sys\nsys.path.append({str(TESTS)!r})\n"
    with private_namespace() as namespace:
        run = namespace.run(sys.executable, "-c", found + BEGINNING + prelude + textwrap.dedent(code), tmp_path)
    assert run.returncode == 0, run.stderr
