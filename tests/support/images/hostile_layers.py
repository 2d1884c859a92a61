"""Layers that no honest writer produces: archives written header by header, and unusual compression."""

import gzip
import random
import struct
import sys
import tarfile
import zlib
from collections.abc import Iterator

from support.images.archives import file, tree

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

INSIDE = "io.triton.cache/"
END = bytes(1024)


def named(name: bytes, data: bytes = b"x", *, kind: bytes = b"0", mode: int = 0o644) -> bytes:
    """Return a member whose name is any bytes, long ones in a GNU header, which no writer would produce."""
    if len(name) <= 100 and b"\0" not in name:
        return _header(name, len(data), kind, mode) + _padded(data)
    long = name + b"\0"
    return (
        _header(b"././@LongLink", len(long), b"L")
        + _padded(long)
        + _header(name[:100], len(data), kind)
        + _padded(data)
    )


def archive(*members: bytes) -> bytes:
    return b"".join(members) + END


def sized(field: bytes) -> bytes:
    """Return a file whose size field is any bytes."""
    return archive(_header(INSIDE.encode() + b"a", 0, b"0", size=field))


def link(name: str, target: str, *, kind: bytes = tarfile.SYMTYPE, mode: int = 0o777) -> tuple[tarfile.TarInfo, bytes]:
    info, data = file(INSIDE + name, b"", kind=kind, mode=mode)
    info.linkname = target
    return info, data


def pax(**records: str) -> bytes:
    info, data = file(INSIDE + "a", b"abc")
    info.pax_headers = records
    return tree((info, data))


def extension(kind: bytes, data: bytes) -> bytes:
    return _header(b"pax", len(data), kind) + _padded(data)


def gzip_bomb(size: int) -> bytes:
    """Return compressed zeros, generated without holding them in memory: a thousand to one."""
    packer = zlib.compressobj(9, wbits=31)
    head = _header(b"elsewhere/zeros", size, b"0")
    zeros = (bytes(1 << 20) for _ in range(size >> 20))
    return b"".join((packer.compress(head), *map(packer.compress, zeros), packer.compress(END), packer.flush()))


def zstd_bomb(size: int) -> bytes:
    packer = zstd.ZstdCompressor()
    head = packer.compress(_header(b"elsewhere/zeros", size, b"0"))
    return head + b"".join(packer.compress(bytes(1 << 20)) for _ in range(size >> 20)) + packer.flush()


def wide_zstd() -> bytes:
    """Return a frame with a window of one gigabyte, which the reader would allocate."""
    options: dict[int, int] = {
        zstd.CompressionParameter.window_log: 30,
        zstd.CompressionParameter.enable_long_distance_matching: 1,
    }
    packer = zstd.ZstdCompressor(options=options)
    return packer.compress(tree((INSIDE + "a", b"x" * 100_000))) + packer.flush()


def pieces(count: int) -> bytes:
    """Return members that yield one byte each."""
    return b"".join(gzip.compress(b"x", mtime=0) for _ in range(count))


def numbered(count: int, where: str = INSIDE) -> bytes:
    return archive(*(named(f"{where}{number}".encode(), b"") for number in range(count)))


def noise(size: int) -> bytes:
    return random.Random(4).randbytes(size)


def chain(depth: int) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    """Return directories and links whose resolved path exceeds PATH_MAX, so that realpath fails (CVE-2025-4517)."""
    directory, path = "d" * 247, ""
    for step in "abcdefghijklmnop"[:depth]:
        yield file(INSIDE + f"{path}{directory}", b"", kind=tarfile.DIRTYPE, mode=0o755)
        yield link(f"{path}{step}", directory)
        path += f"{step}/"
    yield link(f"{path}{'l' * 254}", "../" * depth)
    yield link("escape", f"{path}{'l' * 254}/../../../../victim")
    yield file(INSIDE + "escape", b"overwritten")


def _header(name: bytes, length: int, kind: bytes, mode: int = 0o644, *, size: bytes = b"") -> bytes:
    stated = size or b"%011o\0" % length
    fields = (name, b"%07o\0" % mode, b"", b"", stated, b"%011o\0" % 0, b" " * 8, kind, b"", b"ustar\x0000")
    head = bytearray(struct.pack("100s8s8s8s12s12s8s1s100s8s", *fields).ljust(512, b"\0"))
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)
