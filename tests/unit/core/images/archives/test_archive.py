import io
import tarfile
import tracemalloc

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.images.archives.archive import ByteStream, joined, members
from hypothesis import given
from hypothesis import strategies as st


def tar(*entries: tuple[tarfile.TarInfo, bytes], style: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=style) as archive:
        for info, data in entries:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def entry(name: str, kind: bytes = tarfile.REGTYPE, mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode = kind, mode
    if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
        info.linkname = "/etc/passwd"
    return info


def read(data: bytes, step: int = 700) -> list[tuple[bytes, bytes, bool]]:
    parts = [data[start : start + step] for start in range(0, len(data), step)]
    return [(member.name, b"".join(content), member.executable) for member, content in members(ByteStream(parts))]


@pytest.mark.parametrize("style", [tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_files_and_directories_are_read_whatever_the_writer(style: int) -> None:
    long = "d" * 90 + "/" + "f" * 90
    data = tar(
        (entry("d", tarfile.DIRTYPE, 0o755), b""),
        (entry("d/a"), b"x" * 1500),
        (entry("d/tool", mode=0o755), b""),
        (entry(long), b"deep"),
        style=style,
    )
    assert [(name.rstrip(b"/"), content, executable) for name, content, executable in read(data)] == [
        (b"d", b"", True),
        (b"d/a", b"x" * 1500, False),
        (b"d/tool", b"", True),
        (long.encode(), b"deep", False),
    ]


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (tarfile.SYMTYPE, "symbolic link"),
        (tarfile.LNKTYPE, "hard link"),
        (tarfile.CHRTYPE, "device"),
        (tarfile.BLKTYPE, "device"),
        (tarfile.FIFOTYPE, "pipe"),
        (b"S", "type"),
        (b"V", "type"),
    ],
)
def test_a_member_that_is_neither_file_nor_directory_is_refused_by_name(kind: bytes, word: str) -> None:
    with pytest.raises(GKMError, match=word) as caught:
        read(tar((entry("evil", kind), b"")))
    assert caught.value.reason is Reason.UNSAFE_CONTENT
    assert "evil" in caught.value.message


def test_a_sparse_file_is_refused() -> None:
    info = entry("sparse")
    info.pax_headers = {"GNU.sparse.major": "1"}
    with pytest.raises(GKMError, match="sparse"):
        read(tar((info, b"")))


def test_a_huge_header_is_refused_before_it_is_read() -> None:
    info = entry("x")
    info.pax_headers = {"comment": "y" * (65 << 10)}
    with pytest.raises(GKMError, match="header of"):
        read(tar((info, b"")))


@pytest.mark.parametrize("position", [0, 100, 124, 148, 156])
def test_a_damaged_header_is_refused(position: int) -> None:
    data = bytearray(tar((entry("a"), b"content")))
    data[position] ^= 0x15
    with pytest.raises(GKMError) as caught:
        read(bytes(data))
    assert caught.value.reason is Reason.CONTENT_MISMATCH


@pytest.mark.parametrize("size", [b"\x80" + b"\xff" * 11, b"-0000000001\x00", b"99999999999\x00"])
def test_sizes_that_are_not_octal_are_refused(size: bytes) -> None:
    header = bytearray(tar((entry("a"), b"")))[:512]
    header[124:136] = size
    total = sum(header) - sum(header[148:156]) + 8 * 32
    header[148:156] = b"%06o\x00 " % total
    with pytest.raises(GKMError, match="octal"):
        read(bytes(header) + bytes(1024))


@pytest.mark.parametrize("cut", [1, 511, 513, 1000])
def test_a_cut_archive_is_refused(cut: int) -> None:
    with pytest.raises(GKMError, match="ends in the middle"):
        read(tar((entry("a"), b"x" * 600))[:cut])


def sealed(header: bytearray) -> bytes:
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def extension(kind: bytes, data: bytes) -> bytes:
    return tar((entry("pax", kind), data))[: 512 + -(-len(data) // 512) * 512]


def record(key: bytes, value: bytes) -> bytes:
    body = b" " + key + b"=" + value + b"\n"
    length = len(body) + 1
    while len(b"%d" % length) + len(body) != length:
        length += 1
    return b"%d" % length + body


def test_something_behind_the_end_is_refused() -> None:
    hidden = tar((entry("hidden"), b"x"))
    assert read(tar((entry("a"), b"1")) + bytes(20_000)) == [(b"a", b"1", False)]
    with pytest.raises(GKMError, match="after the end of an archive") as caught:
        read(tar((entry("a"), b"1")) + hidden)
    assert caught.value.reason is Reason.UNSAFE_CONTENT


def test_a_directory_with_content_is_refused() -> None:
    header = bytearray(tar((entry("d", tarfile.DIRTYPE), b"")))[:512]
    header[124:136] = b"%011o\0" % 512
    with pytest.raises(GKMError, match="a directory with content"):
        read(sealed(header) + bytes(2048))


@pytest.mark.parametrize(("stated", "fine"), [(3, True), (0, True), (0o77777777777, True), (2, False), (1024, False)])
def test_two_sizes_of_one_file_are_refused(stated: int, fine: bool) -> None:  # noqa: FBT001 -- a column
    header = bytearray(tar((entry("a"), b"")))[:512]
    header[124:136] = b"%011o\0" % stated
    data = extension(b"x", record(b"size", b"3")) + sealed(header) + b"abc".ljust(512, b"\0") + bytes(1024)
    if fine:
        assert read(data) == [(b"a", b"abc", False)]
        return
    with pytest.raises(GKMError, match="a file of two sizes"):
        read(data)


@pytest.mark.parametrize("key", [b"path", b"size", b"linkpath"])
def test_a_header_that_names_all_files_is_refused(key: bytes) -> None:
    whole = tar((entry("a"), b"1"))
    assert read(extension(b"g", record(b"comment", b"git")) + whole) == [(b"a", b"1", False)]
    with pytest.raises(GKMError, match="names all of its files"):
        read(extension(b"g", record(key, b"1")) + whole)


def test_headers_that_go_on_and_on_are_refused() -> None:
    one, whole = extension(b"x", record(b"mtime", b"1")), tar((entry("a"), b"1"))
    assert read((one * 4 + whole[:1024]) * 3 + bytes(1024)) == [(b"a", b"1", False)] * 3
    with pytest.raises(GKMError, match="more than 4 headers in a row"):
        read(one * 5 + whole)


@pytest.mark.parametrize(
    "records", [[record(b"k%d" % number, b"") for number in range(65)], [record(b"path", b"a"), record(b"path", b"b")]]
)
def test_a_header_with_many_records_or_one_of_them_twice_is_refused(records: list[bytes]) -> None:
    with pytest.raises(GKMError, match="more than 64 records, or one of them twice"):
        read(extension(b"x", b"".join(records)) + tar((entry("a"), b"1")))


@pytest.mark.parametrize("data", [b"9 a=b", b"5 a=b\n", b"0 a\n", b"6a=bcd\n", b"-6 a=b\n", b"6 a=b\n0", b"9" * 40])
def test_a_damaged_pax_header_is_refused(data: bytes) -> None:
    with pytest.raises(GKMError) as caught:
        read(extension(b"x", data) + tar((entry("a"), b"1")))
    assert caught.value.reason is Reason.CONTENT_MISMATCH


@given(st.binary(max_size=4096))
def test_any_bytes_are_an_archive_or_an_error_of_ours(data: bytes) -> None:
    try:
        read(data)
    except GKMError as error:
        assert error.reason in (Reason.CONTENT_MISMATCH, Reason.UNSAFE_CONTENT)


def test_the_pieces_of_a_file_are_joined() -> None:
    only = memoryview(b"one piece")
    assert joined(iter([only])) is only
    assert bytes(joined(iter([]))) == b""
    assert bytes(joined(memoryview(part) for part in (b"", b"a", b"bc", b""))) == b"abc"


def test_a_file_of_pieces_of_one_byte_takes_little_memory() -> None:
    count = 100_000
    tracemalloc.start()
    try:
        assert joined(memoryview(bytes([number % 256])) for number in range(count)).nbytes == count
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * count
