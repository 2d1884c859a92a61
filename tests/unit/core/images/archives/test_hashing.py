"""Files are hashed in the order in which they were written, for any split of the bytes."""

import hashlib

import pytest
from gkm.images.pulling.hashing import MAX_BATCH, FileEnd, FilePart, batches, hash_files
from hypothesis import given
from hypothesis import strategies as st

FILES = st.lists(st.lists(st.binary(min_size=1, max_size=5000), max_size=4), max_size=30)


def parts_of(files: list[list[bytes]]) -> list[FilePart]:
    parts: list[FilePart] = []
    for number, pieces in enumerate(files):
        parts += [memoryview(piece) for piece in pieces]
        parts.append(FileEnd(f"f{number}", sum(map(len, pieces)), executable=bool(number % 2)))
    return parts


@given(FILES)
def test_every_file_has_its_hash_and_its_position(files: list[list[bytes]]) -> None:
    listed = list(hash_files(batches(parts_of(files))))
    assert [one.path for one in listed] == [f"f{number}" for number in range(len(files))]
    assert [one.sha256 for one in listed] == [hashlib.sha256(b"".join(pieces)).hexdigest() for pieces in files]
    assert [one.size for one in listed] == [sum(map(len, pieces)) for pieces in files]
    assert [one.executable for one in listed] == [bool(number % 2) for number in range(len(files))]


def test_a_batch_keeps_only_one_piece_of_the_stream_alive() -> None:
    chunks = [memoryview(bytes(1 << 20)) for _ in range(9)]
    parts: list[FilePart] = []
    for number, chunk in enumerate(chunks):
        parts += [chunk[:5], FileEnd(f"f{number}", 5, executable=False)]
    for batch in batches(parts):
        assert len({id(part.obj) for part in batch if isinstance(part, memoryview)}) <= 1


@pytest.mark.parametrize("count", [1, MAX_BATCH, 10 * MAX_BATCH + 3])
def test_empty_files_do_not_make_a_batch_without_end(count: int) -> None:
    made = list(batches(FileEnd(str(number), 0, executable=False) for number in range(count)))
    assert max(map(len, made)) <= MAX_BATCH
    assert len(list(hash_files(made))) == count
