import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Barrier

import pytest
from gkm.hoststate import trees
from support.host.waiting import scaled

REMOVALS = [trees.remove, trees.remove_side_by_side]

SCRIPT = """
import sys
from pathlib import Path
from gkm.hoststate import trees
def peak():  # ru_maxrss begins with the peak of the process that starts this one
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
before = peak()
trees.remove(Path(sys.argv[1]))
print(peak() - before)
"""


@pytest.mark.parametrize("remove", REMOVALS)
def test_a_tree_is_removed_sealed_or_not_and_links_are_not_followed(
    tmp_path: Path, remove: Callable[[Path], None]
) -> None:
    (tmp_path / "foreign" / "sealed").mkdir(parents=True)
    (tmp_path / "foreign" / "sealed").chmod(0o555)
    (tmp_path / "tree" / "a" / "b").mkdir(parents=True)
    (tmp_path / "tree" / "a" / "link").symlink_to(tmp_path / "foreign")
    (tmp_path / "tree" / "a" / "b" / "file").write_text("x")
    (tmp_path / "tree" / "a" / "b").chmod(0o555)
    (tmp_path / "link").symlink_to(tmp_path / "foreign")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    for name in ("tree", "link", "dangling", "pipe", "gone", "gone/below"):
        remove(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["foreign"]
    assert (tmp_path / "foreign" / "sealed").stat().st_mode & 0o777 == 0o555


@pytest.mark.parametrize("remove", REMOVALS)
def test_a_very_deep_tree_is_removed(tmp_path: Path, remove: Callable[[Path], None]) -> None:
    # 400 levels: deeper than descriptors and the interpreter's stack would go, two descriptors for each.
    descriptor = os.open(tmp_path, os.O_RDONLY)
    for _ in range(400):
        os.mkdir("d", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    remove(tmp_path / "d")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("remove", REMOVALS)
def test_a_failed_removal_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remove: Callable[[Path], None]
) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "file").touch()

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "no")

    monkeypatch.setattr(os, "unlink", refused)
    with pytest.raises(PermissionError):
        remove(tmp_path / "d")


def test_threads_wait_for_their_unlinks_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unlink, waiting = os.unlink, Barrier(4)

    def unlinked(name: str, *, dir_fd: int) -> None:
        unlink(name, dir_fd=dir_fd)
        waiting.wait(scaled(10))  # as for a discard: it breaks unless four of them wait

    (tmp_path / "d").mkdir()
    for number in range(4):
        (tmp_path / "d" / str(number)).touch()
    monkeypatch.setattr(os, "unlink", unlinked)
    trees.remove_side_by_side(tmp_path / "d")
    assert not (tmp_path / "d").exists()


def test_what_threads_remove_side_by_side_is_removed_once(tmp_path: Path) -> None:
    for directory in range(40):
        (tmp_path / "d" / str(directory) / "below").mkdir(parents=True)
        for number in range(40):
            (tmp_path / "d" / str(directory) / "below" / str(number)).touch()
    trees.remove_side_by_side(tmp_path / "d")
    assert list(tmp_path.iterdir()) == []


def test_files_added_without_end_end_in_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "d").mkdir()
    rmdir = os.rmdir

    def filled_again(path: Path, *, dir_fd: int | None = None) -> None:
        (tmp_path / "d" / "file").touch()
        rmdir(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", filled_again)
    with pytest.raises(OSError, match="adds files"):
        trees.remove(tmp_path / "d")


@pytest.mark.parametrize("kind", ["files", "directories"])
def test_a_large_directory_is_removed_in_little_memory(tmp_path: Path, kind: str) -> None:
    memory = Path("/dev/shm")
    place = (memory if memory.is_dir() else tmp_path) / f"gkm-trees-{os.getpid()}"
    place.mkdir()
    try:
        for number in range(40_000):
            path = f"{place}/{'n' * 120}{number}"
            if kind == "files":
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
            else:
                os.mkdir(path)  # noqa: PTH102
        done = subprocess.run([sys.executable, "-c", SCRIPT, place], capture_output=True, text=True, check=True)
        assert not place.exists()
        assert int(done.stdout) < 4 << 10  # KiB; a list of the entries takes 10 MiB
    finally:
        shutil.rmtree(place, ignore_errors=True)
