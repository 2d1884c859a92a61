"""Pods that run the real torch: its interpreter, its packages and a C++ compiler are directories of this machine."""

import shlex
import sys
from collections.abc import Mapping

from support.cluster import gkm_objects as objects
from support.cluster.gkm_objects import MOUNT, Object
from support.e2e.triton_pods import with_directories
from support.torch import installation as torch
from support.torch.cache import PROGRAM, SETTINGS


def compiling_model(name: str, namespace: str, attributes: Mapping[str, str], *options: object) -> Object:
    """A pod that compiles the model, forward and backward, and prints torch's counters.

    `options` are those of the program `compile_model.py`.
    """
    python = torch.python()
    script = shlex.join([str(python), "-I", str(PROGRAM), *map(str, options)])
    # Torch warns of a machine without a GPU on its standard error; the output is the counters alone.
    made = objects.pod(name, namespace, attributes, f"{script} 2> /dev/null")
    settings = {**SETTINGS, "TORCHINDUCTOR_CACHE_DIR": MOUNT, "HOME": "/tmp", "PATH": "/usr/bin:/bin", "USER": "root"}
    made["spec"]["containers"][0]["env"] = [{"name": key, "value": value} for key, value in settings.items()]
    return with_directories(made, sys.base_prefix, str(python.parent.parent), str(PROGRAM.parent))
