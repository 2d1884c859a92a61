"""The variables that real Triton keys on wherever they are set, as `gkm cache explain` takes them."""

import json
import os
import subprocess

from gkm.runtimes.keys import same_value
from gkm.runtimes.triton import KEY_VARIABLES
from support.triton import installation

_PROGRAM = "import json; from triton._C.libtriton import get_cache_invalidating_env_vars as g; print(json.dumps(g()))"


def keyed_on(**variables: str) -> dict[str, str]:
    """Return what Triton adds to a key, and to the metadata of a kernel."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ} | variables
    done = subprocess.run(
        [installation.python(), "-c", _PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_each_of_them_is_in_the_key_once_it_is_set_and_only_then() -> None:
    assert keyed_on() == {}
    assert keyed_on(**dict.fromkeys(KEY_VARIABLES, "1"), VLLM_USE_V1="1").keys() == KEY_VARIABLES


def test_values_compare_as_triton_normalizes_them() -> None:
    for text in ("0", "1", "true", "off", "some"):
        (stated,) = keyed_on(TRITON_DEFAULT_FP_FUSION=text).values()
        assert same_value(stated, text) is True, (stated, text)
