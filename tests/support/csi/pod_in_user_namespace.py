"""Attack a volume as root of a user namespace, with the ids of its top mount mapped: as runc mounts it for a pod.

For a mount namespace that ends with the test. The pod is a fork: its user may not read the interpreter's files.
"""

import ctypes
import json
import os
from pathlib import Path

from gkm.hoststate.files import closing
from gkm.mounts import syscalls
from support.csi import attacks

FIRST, IDS = 655360, 65536
"""The ids of the machine that the pod has."""
AREA = Path("/run")
VOLUME = AREA / "volume"
"""Where the pod sees its volume."""
_CLONE_NEWNS = 0x00020000
_PR_SET_DUMPABLE = 4


def attacked(volume: Path) -> dict[str, str]:
    """Return the outcome of each attack on the volume that is mounted at a path."""
    syscalls.mount("area", str(AREA), "tmpfs", 0, "mode=0777")
    VOLUME.mkdir()
    told, telling = os.pipe()
    waiting, starting = os.pipe()
    child = os.fork()
    if child == 0:
        _pod(telling, waiting)
    os.close(telling)
    with closing(told), closing(starting):
        os.read(told, 1)
        _map(child, volume)
        os.write(starting, b"\0")
        with os.fdopen(told, "rb", closefd=False) as answer:
            outcomes: dict[str, str] = json.loads(answer.read())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return outcomes


def _map(child: int, volume: Path) -> None:
    for file in ("uid_map", "gid_map"):
        Path(f"/proc/{child}/{file}").write_text(f"0 {FIRST} {IDS}", encoding="ascii")
    with (
        closing(os.open(f"/proc/{child}/ns/user", os.O_RDONLY)) as namespace,
        closing(os.open(volume, os.O_PATH)) as source,
        closing(os.open(VOLUME, os.O_PATH)) as target,
        closing(syscalls.open_tree(source, recursive=True)) as tree,
    ):
        syscalls.map_ids(tree, namespace)
        syscalls.move_mount(tree, target)


def _pod(telling: int, waiting: int) -> None:
    code = 1
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        syscalls.enter_user_namespace()
        libc.prctl(_PR_SET_DUMPABLE, 1)  # else its own files below /proc belong to root of the machine
        os.write(telling, b"\0")
        os.read(waiting, 1)
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
        libc.prctl(_PR_SET_DUMPABLE, 1)
        attacks.called(libc.unshare(_CLONE_NEWNS))
        os.write(telling, json.dumps(attacks.outcomes(VOLUME)).encode())
        code = 0
    finally:
        os._exit(code)
