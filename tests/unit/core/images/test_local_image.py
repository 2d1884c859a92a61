import hashlib
from pathlib import Path

import pytest
from gkm.images.local_image import PIECE_BYTES, LocalBlob, write_blob
from gkm.images.manifest import Descriptor

DATA = b"0123456789" * (PIECE_BYTES // 5)


def described(data: bytes) -> Descriptor:
    return Descriptor("type", f"sha256:{hashlib.sha256(data).hexdigest()}", len(data))


def test_a_blob_in_memory_is_its_bytes() -> None:
    blob = LocalBlob.from_bytes(b"abc", "type")
    assert (blob.descriptor, b"".join(blob.pieces())) == (described(b"abc"), b"abc")


def test_a_blob_can_lie_in_the_middle_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"before" + DATA + b"after")
    assert b"".join(LocalBlob(described(DATA), tmp_path / "file", 6).pieces()) == DATA


def test_a_file_that_ends_too_early_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(DATA[:-1])
    with pytest.raises(OSError, match="ends 1 bytes too early"):
        list(LocalBlob(described(DATA), tmp_path / "file").pieces())


def test_a_link_instead_of_the_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(DATA)
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(OSError, match="symbolic links"):
        list(LocalBlob(described(DATA), tmp_path / "link").pieces())


def test_a_stored_blob_has_the_descriptor_of_its_bytes(tmp_path: Path) -> None:
    blob = write_blob([DATA[:100], b"", DATA[100:]], tmp_path / "file", "type")
    assert blob.descriptor == described(DATA)
    assert b"".join(blob.pieces()) == DATA


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"kept")
    with pytest.raises(FileExistsError):
        write_blob([DATA], tmp_path / "file", "type")
    assert (tmp_path / "file").read_bytes() == b"kept"
