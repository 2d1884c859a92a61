"""Shared libraries, as the loader of a kernel with large pages sees them (ELF-64, little-endian)."""

import struct

MAGIC = b"\x7fELF\x02\x01"
AARCH64 = 183
_LOAD = 1
_PROGRAM_HEADER = struct.Struct("<II6Q")


def machine(data: bytes) -> int:
    """Return the architecture (e_machine)."""
    return int(struct.unpack_from("<H", data, 18)[0])


def largest_page(data: bytes) -> int:
    """Return the largest size of pages with which the library can be loaded: its segments are aligned to it."""
    (offset,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    headers = [_PROGRAM_HEADER.unpack_from(data, offset + number * size) for number in range(count)]
    return min(int(header[-1]) for header in headers if header[0] == _LOAD)
