"""Pods that run the real Triton: its interpreter and packages are directories of this machine, mounted read-only."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from support.cluster import gkm_objects as objects
from support.cluster.gkm_objects import MOUNT, Object
from support.triton import installation as triton
from support.triton.cache import PROGRAMS

SYSTEM = ("/usr", "/lib", "/lib64")


def compiling(
    name: str, namespace: str, attributes: Mapping[str, str], *kernels: int | str, then: str = "true"
) -> Object:
    """A pod that compiles kernels, each BLOCK[:WARPS[:ARCHITECTURE]], and runs the script `then`.

    It prints a line of JSON for each kernel.
    """
    python = triton.python()
    program = f"{python} -I {PROGRAMS / 'compile_kernel.py'}"
    script = " && ".join([*(f"{program} {kernel} && echo" for kernel in kernels), then])
    made = objects.pod(name, namespace, attributes, script)
    container = made["spec"]["containers"][0]
    container["env"] = [
        {"name": "TRITON_CACHE_DIR", "value": MOUNT},
        {"name": "TRITON_DEFAULT_FP_FUSION", "value": "1"},
        {"name": "HOME", "value": "/tmp"},
    ]
    return with_directories(made, sys.base_prefix, str(python.parent.parent), str(PROGRAMS))


def with_directories(pod: Object, *places: str) -> Object:
    """Return a pod that sees directories of this machine, and its libraries, where this machine has them."""
    for number, place in enumerate((*SYSTEM, *places)):
        pod["spec"]["volumes"].append({"name": f"host-{number}", "hostPath": {"path": str(Path(place).resolve())}})
        mount = {"name": f"host-{number}", "mountPath": place, "readOnly": True}
        pod["spec"]["containers"][0]["volumeMounts"].append(mount)
    return pod


def hits(printed: str) -> list[bool]:
    """Return for each kernel of a pod whether Triton found it."""
    return [json.loads(line)["hit"] for line in printed.splitlines()]
