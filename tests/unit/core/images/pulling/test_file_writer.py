"""Files are written and listed with their hashes, in the order in which they came, and in bounded memory."""

import hashlib
import os
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.images.local_image import write_all
from gkm.images.pulling import extract
from gkm.images.pulling.extract import BATCH_BYTES, MAX_BATCH, MAX_WAITING, FileWriter, NewFile
from gkm.images.pulling.file_list import ListedFile
from hypothesis import given
from hypothesis import strategies as st
from support.host.waiting import scaled

CONTENTS = st.lists(st.binary(max_size=5000), max_size=30)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    directory = tmp_path / "target"
    directory.mkdir()
    return directory


def new(name: str, content: bytes, *, executable: bool = False) -> NewFile:
    return NewFile(name, memoryview(content), executable)


def written(target: Path, files: list[NewFile]) -> list[ListedFile]:
    listed: list[ListedFile] = []
    with FileWriter.open(str(target), listed.append) as writer:
        for file in files:
            writer.add(file)
    return listed


@given(CONTENTS, st.integers(1, 5))
def test_every_file_is_written_and_listed_in_order(contents: list[bytes], batch: int) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        target = Path(name)
        patch.setattr(extract, "MAX_BATCH", batch)
        listed = written(target, [new(f"f{number}", content) for number, content in enumerate(contents)])
        assert [(target / file.path).read_bytes() for file in listed] == contents
    assert listed == [
        ListedFile(f"f{number}", len(content), hashlib.sha256(content).hexdigest())
        for number, content in enumerate(contents)
    ]


def test_a_large_file_comes_after_the_files_before_it(target: Path) -> None:
    sizes = (1, BATCH_BYTES, 7, BATCH_BYTES - 8, 9, *[3] * MAX_BATCH, 1)
    pieces = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
    listed: list[ListedFile] = []
    with FileWriter.open(str(target), listed.append) as writer:
        writer.add(new("before", b"1"))
        writer.stream("large", map(memoryview, pieces), executable=True)
        writer.add(new("behind", b"2"))
    assert [file.path for file in listed] == ["before", "large", "behind"]
    assert listed[1] == ListedFile("large", sum(sizes), hashlib.sha256(b"".join(pieces)).hexdigest(), executable=True)
    assert (target / "large").read_bytes() == b"".join(pieces)


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o777])
def test_modes_do_not_depend_on_the_umask(target: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        written(target, [new(f"{number}", b"x", executable=bool(number % 2)) for number in range(6)])
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((target / f"{number}").stat().st_mode) for number in range(6)]
    assert modes == [0o444, 0o555] * 3


@pytest.mark.parametrize("large", [False, True])
def test_a_file_that_exists_is_refused_and_stays(target: Path, large: bool) -> None:  # noqa: FBT001
    (target / "a").write_bytes(b"first")

    def write() -> None:
        with FileWriter.open(str(target), print) as writer:
            if large:
                writer.stream("a", [memoryview(b"second")], executable=False)
            else:
                writer.add(new("a", b"second"))

    with pytest.raises(GKMError, match="'a' twice") as caught:
        write()
    assert caught.value.reason is Reason.UNSAFE_CONTENT
    assert (target / "a").read_bytes() == b"first"


def test_a_link_is_not_followed(target: Path, tmp_path: Path) -> None:
    (target / "a").symlink_to(tmp_path / "victim")
    with pytest.raises(GKMError, match="'a' twice"):
        written(target, [new("a", b"x")])
    assert not (tmp_path / "victim").exists()


def test_an_error_of_the_disk_reaches_the_caller(target: Path) -> None:
    with pytest.raises(FileNotFoundError):
        written(target, [new("missing/a", b"x")])


def test_an_exception_in_the_block_ends_it_without_the_rest_and_leaves_no_thread(target: Path) -> None:
    def broken() -> Iterator[memoryview]:
        yield memoryview(b"1")
        raise ZeroDivisionError

    def write() -> None:
        with FileWriter.open(str(target), print) as writer:
            writer.add(new("before", b"0"))
            writer.stream("large", broken(), executable=False)

    with pytest.raises(ZeroDivisionError):
        write()
    assert sorted(path.name for path in target.iterdir()) == ["before", "large"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("gkm-write")]


def test_batches_that_wait_are_not_written_after_an_exception(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, go = threading.Event(), threading.Event()

    def slow(descriptor: int, part: bytes | memoryview) -> None:
        first.set()
        go.wait(scaled(30))
        write_all(descriptor, part)

    monkeypatch.setattr(extract, "write_all", slow)

    def write() -> None:
        with FileWriter.open(str(target), print) as writer:
            for number in range(3 * MAX_BATCH):
                writer.add(new(str(number), b"x"))
            assert first.wait(scaled(30))
            threading.Timer(0.5, go.set).start()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert len(list(target.iterdir())) <= extract.WRITERS


def test_a_mode_that_cannot_be_set_leaves_no_descriptor_open(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_descriptor: int, _mode: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "fchmod", refused)
    before, umask = len(list(Path("/proc/self/fd").iterdir())), os.umask(0o077)
    try:
        for number in range(5):
            with pytest.raises(PermissionError):
                written(target, [new(str(number), b"x")])
    finally:
        os.umask(umask)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_batches_that_wait_keep_little_memory_alive(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file uses five bytes of a piece of the stream, and keeps all of the piece in memory until it is written."""
    go, created = threading.Event(), threading.Semaphore(0)

    def slow(descriptor: int, part: bytes | memoryview) -> None:
        go.wait(scaled(30))
        write_all(descriptor, part)

    monkeypatch.setattr(extract, "write_all", slow)

    def add_all() -> None:
        with FileWriter.open(str(target), lambda _: None) as writer:
            for number in range(100):
                writer.add(NewFile(f"{number}", memoryview(bytes(BATCH_BYTES))[:5], executable=False))
                created.release()

    adding = threading.Thread(target=add_all)
    adding.start()
    added = 0
    while created.acquire(timeout=1):
        added += 1
    go.set()
    adding.join(scaled(30))
    assert added <= 2 * (MAX_WAITING + 1)
    assert len(list(target.iterdir())) == 100


def test_empty_files_do_not_make_a_batch_without_end(target: Path) -> None:
    listed: list[ListedFile] = []
    with FileWriter.open(str(target), listed.append) as writer:
        for number in range((MAX_WAITING + 2) * MAX_BATCH):
            writer.add(new(str(number), b""))
        assert len(listed) >= MAX_BATCH
    assert len(listed) == (MAX_WAITING + 2) * MAX_BATCH
