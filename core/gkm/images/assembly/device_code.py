"""Find the GPU in compiled code of NVIDIA's: cubins, which are ELF files, and fatbins, which hold several.

Both stand alone, in object files and libraries, and in MLIR bytecode, so the search looks for their headers at any
offset. A header of a fatbin names the length of its entries, and each entry its own: the entries are walked without
reading what they hold, compressed or not. Foreign bytes cost constant memory and a bounded number of steps.

A cubin of ABI version 7 has the architecture in the lowest byte of e_flags; a cubin of version 8 has it in the next
byte.
"""

import re
import struct
from collections.abc import Iterable, Iterator
from typing import Final

from gkm.api.targets import CUDA, GpuTarget
from gkm.images.assembly.compiled_targets import target_of

MAX_ENTRIES: Final = 100_000
"""Limit of cubins in the fatbins of one file. A library of 5,000 object files for 10 GPUs has half as many."""
# Foreign headers may overlap: only the literal is consumed, so that the cuts between pieces have no effect.
_CUBIN: Final = re.compile(rb"\x7fELF\x02\x01\x01(?=.([\x07\x08]).{7}..\xbe\x00.{28}(.{4}))", re.DOTALL)
_FATBIN: Final = re.compile(rb"\x50\xed\x55\xba..\x10\x00(.{8})", re.DOTALL)
_ENTRY: Final = struct.Struct("<HHIQ12xI")
"""The kind, two bytes, the sizes of header and content, and the architecture."""
_ELF: Final = 2
_OVERLAP: Final = 64
"""More than the longest header."""
_POSSIBLE: Final = range(20, 256)


def device_targets(pieces: Iterable[bytes]) -> set[GpuTarget]:
    """Return the GPUs that compiled code in a file is for; raises the errors of reading it."""
    return {target_of(CUDA, str(number)) for number in _architectures(pieces) if number in _POSSIBLE}


def _architectures(pieces: Iterable[bytes]) -> Iterator[int]:
    fatbin = _Fatbin()
    tail, start = b"", 0
    for piece in pieces:
        window = tail + piece
        for found in _CUBIN.finditer(window):
            flags = int.from_bytes(found[2], "little")
            yield (flags if found[1] == b"\x07" else flags >> 8) & 0xFF
        yield from fatbin.architectures(window, start)
        tail = window[-_OVERLAP:]
        start += len(window) - len(tail)


class _Fatbin:
    """The fatbin that a walk has reached; one begins behind the end of the one before it."""

    def __init__(self) -> None:
        self._next = self._end = 0
        self._left = MAX_ENTRIES

    def architectures(self, window: bytes, start: int) -> Iterator[int]:
        """Yield the architectures of the entries in a window, whose first byte is at `start` in the file."""
        yield from self._entries(window, start)
        while self._next >= self._end and self._left > 0:
            found = _FATBIN.search(window, min(max(self._end - start, 0), len(window)))
            if found is None:
                return
            self._left -= 1
            self._next = start + found.end()
            self._end = self._next + int.from_bytes(found[1], "little")
            yield from self._entries(window, start)

    def _entries(self, window: bytes, start: int) -> Iterator[int]:
        last = start + len(window) - _ENTRY.size
        while self._next < self._end and self._next <= last and self._left > 0:
            self._left -= 1
            kind, _, header, content, number = _ENTRY.unpack_from(window, self._next - start)
            if kind == _ELF:
                yield number
            self._next += max(header, _ENTRY.size) + content
