"""The probe tells whether the kernel maps the ids of a tmpfs, and what else is in the way."""

import errno
import os
from pathlib import Path

import pytest
from gkm.mounts import id_mapping, syscalls
from support.csi import mounting
from support.peers import require

mounts = pytest.mark.mounts


@mounts
def test_this_kernel_maps_the_ids_of_a_tmpfs_and_keeps_nothing(tmp_path: Path) -> None:
    mounting.inside(
        tmp_path,
        "",
        """
        from gkm.mounts import id_mapping
        before = len(os.listdir("/proc/self/fd"))
        assert id_mapping.missing_feature() == ""
        assert len(os.listdir("/proc/self/fd")) == before
        assert code_of(lambda: os.waitpid(-1, os.WNOHANG)) == "ECHILD"
        """,
    )


@mounts
def test_a_file_system_whose_ids_cannot_be_mapped_is_an_old_kernel(tmp_path: Path) -> None:
    mounting.inside(
        tmp_path,
        "",
        """
        from gkm.mounts import id_mapping
        real = syscalls.fsmount
        syscalls.fsmount = lambda _kind: real("ramfs")
        assert "Linux 6.3 or newer is needed" in id_mapping.missing_feature()
        """,
    )


@pytest.mark.parametrize(
    ("call", "code", "why"),
    [
        ("map_ids", errno.ENOSYS, "Linux 6.3 or newer is needed"),
        ("map_ids", errno.EPERM, "cannot be mapped (Operation not permitted)"),
        ("fsmount", errno.EPERM, "cannot be mapped (Operation not permitted)"),
        ("enter_user_namespace", errno.ENOSPC, "no user namespace can be made (No space left on device)"),
    ],
)
def test_each_refusal_has_its_reason(monkeypatch: pytest.MonkeyPatch, call: str, code: int, why: str) -> None:
    require.root()

    def refused(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(syscalls, call, refused)
    assert why in id_mapping.missing_feature()
