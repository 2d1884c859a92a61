"""Target for compiled code of NVIDIA's: headers of cubins and fatbins, whole, broken and inside each other."""

import random
import struct

from fuzz_mutators import Blind, Mutator
from gkm.images.assembly.device_code import device_targets
from gkm.images.cache import is_valid_target
from support.images.families import cubin

_ARCHITECTURES = (0, 7, 19, 20, 75, 80, 90, 100, 121, 255)
_LENGTHS = (0, 1, 15, 16, 28, 63, 64, 65, 400, (1 << 63) - 1, (1 << 64) - 1)


def device_code(data: bytes) -> None:
    """The GPUs do not depend on where a file is cut, and are valid."""
    whole = device_targets([data])
    for size in (1, 7, 63, 64, 257):
        cut = device_targets(data[at : at + size] for at in range(0, len(data), size))
        assert cut == whole, (size, cut, whole)
    assert all(is_valid_target(target) for target in whole), whole


def _fatbin(length: int) -> bytes:
    return b"\x50\xed\x55\xba\x01\x00\x10\x00" + struct.pack("<Q", length)


def _entry(kind: int, header: int, content: int, number: int) -> bytes:
    return struct.pack("<HHIQ12xI", kind, 1, header, content, number)


def of_headers(change: Blind) -> Mutator:
    """Return what puts whole and broken headers into a file, also over each other, and cuts some."""

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < 0.3:
            return change(data, most)
        at = chance.randint(0, len(data))
        made = _header(chance)
        made = made[: len(made) - chance.choice((0, 0, 0, 1, 12))]
        return (data[:at] + made + data[at + chance.choice((0, 0, 10, 400)) :])[:most]

    return mutate


def _header(chance: random.Random) -> bytes:
    length, number = chance.choice(_LENGTHS), chance.choice(_ARCHITECTURES)
    return chance.choice(
        (
            cubin(number, chance.choice((7, 8))),
            _fatbin(length),
            _entry(chance.choice((1, 2)), chance.choice((0, 28, 64, 1 << 31)), length, number),
        )
    )
