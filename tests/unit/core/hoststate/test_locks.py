"""The lock of a process for its life, and the locks of entries."""

import os
import subprocess
import sys
from pathlib import Path
from threading import Event, Thread

import pytest
from gkm.hoststate import locks
from gkm.hoststate.locks import LockBusy

DEADLINE = 60


def test_the_process_lock_makes_its_directory_and_is_exclusive(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "csi"
    with locks.process_lock(path, 0), pytest.raises(LockBusy), locks.process_lock(path, 0):
        pass
    with locks.process_lock(path, 0):
        pass


def test_a_successor_gets_it_when_the_holder_lets_go(tmp_path: Path) -> None:
    path, held, got = tmp_path / "csi", Event(), Event()

    def successor() -> None:
        held.set()
        with locks.process_lock(path, DEADLINE):
            got.set()

    with locks.process_lock(path, 0):
        thread = Thread(target=successor)
        thread.start()
        assert held.wait(DEADLINE)
        assert not got.is_set()
    assert got.wait(DEADLINE)
    thread.join(DEADLINE)


def test_the_lock_of_a_killed_process_is_released(tmp_path: Path) -> None:
    path = tmp_path / "csi"
    code = "import sys; from pathlib import Path; from gkm.hoststate import locks\n"
    code += "with locks.process_lock(Path(sys.argv[1]), 0): print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LockBusy), locks.process_lock(path, 0):
            pass
        holder.kill()
        holder.wait(DEADLINE)
    with locks.process_lock(path, DEADLINE):
        pass


def test_a_lock_on_a_removed_file_is_not_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "entry"
    with locks.exclusive(path):
        path.unlink()
        with locks.shared(path):  # another file by now
            pass


def test_a_link_or_a_directory_instead_of_the_lock_file_is_an_error_and_leaks_nothing(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "directory").mkdir()
    before = os.listdir("/proc/self/fd")  # noqa: PTH208 -- a count
    for name, problem in (("link", "symbolic links"), ("directory", "Is a directory")):
        with pytest.raises(OSError, match=f"{problem}.*{name}"), locks.process_lock(tmp_path / name, 0):
            pass
    assert len(os.listdir("/proc/self/fd")) == len(before)  # noqa: PTH208
    assert not (tmp_path / "elsewhere").exists()


def test_an_error_inside_releases_the_lock(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locks.process_lock(tmp_path / "csi", 0):
        raise ZeroDivisionError
    with locks.process_lock(tmp_path / "csi", 0):
        pass
