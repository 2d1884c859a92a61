import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from gkm.hoststate import files
from gkm.hoststate.files import UnreadableState
from support.host.descriptors import open_below
from support.host.descriptors_used_up import descriptors_used_up


def test_a_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "a" / "state.json"
    files.replace(path, b'{"v": 1}')
    files.replace(path, b'{"v": 2}', durable=False)
    assert files.read_object(path) == {"v": 2}
    assert [entry.name for entry in path.parent.iterdir()] == ["state.json"]


def test_a_failed_replacement_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.json"
    files.replace(path, b"{}")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        files.replace(path, b'{"v": 2}')
    assert path.read_bytes() == b"{}"
    assert list(tmp_path.iterdir()) == [path]


WRITER = """
import itertools, sys
from pathlib import Path
from gkm.hoststate import files
path = Path(sys.argv[1])
for n in itertools.count():
    files.replace(path, files.encode({"n": n, "again": [n] * 2000}), durable=False)
    if n == 0:
        print("writing", flush=True)
"""


def test_a_writer_killed_at_any_moment_leaves_a_complete_file(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    for _ in range(10):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            for _ in range(20):  # the writer goes on while we read
                value = files.read_object(path)
                assert value["again"] == [value["n"]] * 2000
            writer.send_signal(signal.SIGKILL)
        value = files.read_object(path)
        assert value["again"] == [value["n"]] * 2000


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b'"text"', b"[" * 100_000])
def test_json_that_is_not_an_object_is_refused_with_its_path(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(content)
    with pytest.raises(UnreadableState, match=r"state\.json"):
        files.read_object(path)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("{}")
    (tmp_path / "state.json").symlink_to(tmp_path / "secret")
    with pytest.raises(UnreadableState, match="symbolic links"):
        files.read_object(tmp_path / "state.json")


def test_a_named_pipe_does_not_hang_the_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "state.json")
    with pytest.raises(UnreadableState, match="not a regular file"):
        files.read_object(tmp_path / "state.json")


def test_a_directory_is_no_file_and_costs_no_descriptor(tmp_path: Path) -> None:
    (tmp_path / "state.json").mkdir()
    for _ in range(3):
        with pytest.raises(UnreadableState, match="not a regular file"):
            files.read_bounded(tmp_path / "state.json")
    assert open_below(tmp_path) == []


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize("read", [files.read_object, lambda path: files.load(path, dict)])
def test_a_file_that_cannot_be_read_now_is_no_damaged_one(
    tmp_path: Path, code: int, read: Callable[[Path], object]
) -> None:
    path = tmp_path / "state.json"
    files.replace(path, b"{}")
    with descriptors_used_up(path, code), pytest.raises(OSError, match=r"state\.json") as caught:
        read(path)
    assert caught.value.errno == code, "its readers take it for damaged, and write it again"


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(b"x" * 101)
    with pytest.raises(UnreadableState, match="larger than 100"):
        files.read_bounded(path, limit=100)


def test_empty_directories_are_removed_up_to_the_given_level(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)

    files.remove_empty(tmp_path / "a" / "b" / "c", levels=2)

    assert [path.name for path in tmp_path.rglob("*")] == ["a"]


def test_a_directory_that_is_not_empty_ends_the_removal(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "stray").touch()

    files.remove_empty(tmp_path / "a" / "b", levels=3)

    assert [path.name for path in tmp_path.rglob("*")] == ["a", "stray"]


def test_removing_a_missing_directory_or_a_file_is_not_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")

    for name in ("gone", "file", "link"):
        files.remove_empty(tmp_path / name)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link"]


def test_an_unreadable_directory_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name, problem in (("gone", "No such file or directory"), ("file", "Not a directory")):
        with pytest.raises(OSError, match=f"{problem}.*{name}"):
            files.names_in(tmp_path / name)
    assert files.names_in(tmp_path) == ["file"]
