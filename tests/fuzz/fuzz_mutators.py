"""How inputs are changed so that a change survives the outermost parser: JSON stays JSON, a tar header keeps its sum.

The JSON parser is C, which coverage does not see into: of bytes that are changed blindly nearly all end there. A
mutator of libFuzzer's kind takes (data, bound of the size, seed) and returns new data.
"""

import base64
import binascii
import json
import random
from collections.abc import Callable

Mutator = Callable[[bytes, int, int], bytes]
Blind = Callable[[bytes, int], bytes]
"""libFuzzer's own way: atheris.Mutate."""

BLOCK = 512
MAX_DEPTH = 40
_ODD: tuple[object, ...] = (
    None,
    True,
    0,
    -1,
    1 << 31,
    1 << 63,
    1e400,
    0.5,
    "",
    "null",
    "{}",
    "..",
    "/etc/passwd",
    "\x00",
    "\x1b[31m\n",
    "\u202e",
    "\ud800",
    "sha256:" + "1" * 64,
    "sha256:" + "A" * 64,
    "sha512:" + "1" * 128,
    "AAAA",
    "9" * 30,
    "١",
    [],
    {},
)
_WORDS = "docker.io/ :443 [::1] localhost .. // / @ : A.b \u00a0 _ - index.docker.io/ library/ xn-- %2f ? #"
_TOKENS = (*(word.encode() for word in _WORDS.split(" ")), b"@sha256:" + b"1" * 64, b"a" * 129)
_AMOUNTS = tuple(
    "+ - . 0 1 8 9 1024 1000 m u n k Ki Mi G E e E e+ e- e3 i 000 999999999999999999 \u0661".encode().split(b" ")
)
_TOPOLOGY = (
    b"\n",
    b"\r\n",
    b'"',
    b"[1]\t",
    b"[ext 1]",
    b"Switch\t",
    b"Ca\t",
    b"sysimgguid=0x1\n",
    b"caguid=0x1\n",
    b"switchguid=0x1(1)\n",
    *(b'Switch\t65 "S-000000000000000%d"\t\t# "s" enhanced port 0\n' % number for number in range(4)),
    *(b'[1]\t"S-000000000000000%d"[1]\t\t# "s" lid 1 4xNDR\n' % number for number in range(4)),
    *(b'[1]\t"H-000000000000001%d"[1](1%d) \t\t# "gpu-%d mlx5_0" lid 1 4xNDR\n' % (n, n, n % 4) for n in range(8)),
)
_KINDS = b"0\x0001234567xgLKSVD"
_NAMES = (b"../x", b"/x", b"a//b", b"a/./b", b".", b"a/", b"io.triton.cache/.wh.a", b"\xff", b"a\nb", b"d/" * 17 + b"f")
_NUMBERS = (b"00000000000\0", b"77777777777\0", b"\x80" + b"\0" * 10 + b"\1", b"\xff" * 12, b"           \0", b"-1\0")


def of_words(change: Blind) -> Mutator:
    """Return what splices words that mean something into a reference."""
    return _splicing(_TOKENS, change)


def of_quantities(change: Blind) -> Mutator:
    """Return what splices signs, digits and suffixes into a quantity."""
    return _splicing(_AMOUNTS, change)


def of_topology(change: Blind) -> Mutator:
    """Return what splices lines of ibnetdiscover into a topology file."""
    return _splicing(_TOPOLOGY, change)


def _splicing(tokens: tuple[bytes, ...], change: Blind) -> Mutator:
    def mutate(data: bytes, most: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < 0.3:
            return change(data, most)
        first, second = sorted(chance.randint(0, len(data)) for _ in range(2))
        kept = data[second:] if chance.random() < 0.5 else data[first:]
        return (data[:first] + chance.choice(tokens) + kept)[:most]

    return mutate


def of_json(change: Blind) -> Mutator:
    """Return what changes one place of a JSON text, also of one that stands inside a text, plain or in base64."""

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < 0.15:
            return change(data, most)
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return change(data, most)
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            value = _changed(value, chance, change, MAX_DEPTH)
        try:
            return json.dumps(value, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")[:most]
        except (ValueError, RecursionError):
            return change(data, most)

    return mutate


def of_lines(of_line: Callable[[Blind], Mutator]) -> Callable[[Blind], Mutator]:
    """Return what changes one line of several as `of_line` does, or repeats, removes or moves it."""

    def with_change(change: Blind) -> Mutator:
        def mutate(data: bytes, most: int, seed: int) -> bytes:
            chance = random.Random(seed)
            lines = data.split(b"\n")
            line = lines.pop(chance.randrange(len(lines)))
            changed = chance.choice(([], [line, line], [line], [of_line(change)(line, most, seed)]))
            at = chance.randrange(len(lines) + 1)
            return b"\n".join([*lines[:at], *changed, *lines[at:]])[:most]

        return mutate

    return with_change


def of_laid_out_json(change: Blind) -> Mutator:
    """Return what changes JSON, and lays it out as kubectl does, with the indentation gone wrong now and then."""
    inner = of_json(change)

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        chance = random.Random(seed)
        changed = inner(data, most, seed)
        if chance.random() < 0.2:
            return changed
        try:
            laid_out = json.dumps(json.loads(changed), indent=chance.choice((1, 4, 4, 4, 8))).encode()
        except (ValueError, RecursionError):
            return changed
        if chance.random() < 0.3:
            lines = laid_out.split(b"\n")
            at = chance.randrange(len(lines))
            lines[at] = chance.choice((b" " * 4, b"", b"    ]", b"        },", b"        {")) + lines[at].lstrip()
            laid_out = b"\n".join(lines)
        return laid_out[:most]

    return mutate


def _changed(value: object, chance: random.Random, change: Blind, depth: int) -> object:
    if depth == 0 or chance.random() < 0.12:
        return chance.choice(_ODD)
    if isinstance(value, dict) and value:
        return _object(value, chance, change, depth)
    if isinstance(value, list) and value:
        return _list(value, chance, change, depth)
    if isinstance(value, str):
        return _text(value, chance, change, depth)
    if isinstance(value, int | float):
        return chance.choice((value + 1, -value, value * 1000, str(value), [value]))
    return chance.choice(_ODD)


def _object(value: dict[str, object], chance: random.Random, change: Blind, depth: int) -> object:
    copy = dict(value)
    key = chance.choice(list(copy))
    match chance.randint(0, 9):
        case 0:
            del copy[key]
        case 1:
            copy[chance.choice(("annotations", "mediaType", "digest", "size", "platform", key + "x"))] = copy[key]
        case 2:
            other = chance.choice(list(copy))
            copy[key], copy[other] = copy[other], copy[key]
        case _:
            copy[key] = _changed(copy[key], chance, change, depth - 1)
    return copy


def _list(value: list[object], chance: random.Random, change: Blind, depth: int) -> object:
    copy = list(value)
    place = chance.randrange(len(copy))
    match chance.randint(0, 9):
        case 0:
            del copy[place]
        case 1:
            copy *= chance.choice((2, 3, 100))
        case _:
            copy[place] = _changed(copy[place], chance, change, depth - 1)
    return copy[:300]


def _text(value: str, chance: random.Random, change: Blind, depth: int) -> str:
    if chance.random() < 0.7:
        if value[:1] in "{[" and value:
            return _inside(value.encode("utf-8", "replace"), chance, change, depth).decode("utf-8", "replace")
        try:
            inner = base64.b64decode(value, validate=True) if len(value) > 8 else b""
        except (binascii.Error, ValueError):
            inner = b""
        if inner:
            return base64.b64encode(_inside(inner, chance, change, depth)).decode()
    return change(value.encode("utf-8", "replace"), 4096).decode("utf-8", "replace")


def _inside(data: bytes, chance: random.Random, change: Blind, depth: int) -> bytes:
    try:
        return json.dumps(_changed(json.loads(data), chance, change, depth - 1)).encode()
    except (ValueError, RecursionError):
        return change(data, 4096)


def of_tar(change: Blind) -> Mutator:
    """Return what changes the fields of one header of an archive, or moves blocks, and makes all sums right again."""

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < 0.1:
            return change(data, most)
        blocks = [bytearray(data[at : at + BLOCK].ljust(BLOCK, b"\0")) for at in range(0, len(data), BLOCK)]
        if not blocks:
            return change(data, most)
        heads = [block for block in blocks if block[257:262] == b"ustar" or block[148:156].strip(b"\0 ").isdigit()]
        _field(chance.choice(heads or blocks), chance, change)
        if chance.random() < 0.25:
            at = chance.randrange(len(blocks))
            blocks[at:at] = [bytearray(block) for block in blocks[at : at + chance.choice((1, 2, 3))]]
        if chance.random() < 0.1:
            del blocks[chance.randrange(len(blocks))]
        for head in heads:
            _seal(head)
        joined = b"".join(blocks)[: most - most % BLOCK]
        return joined[: -chance.randint(1, BLOCK)] if chance.random() < 0.05 else joined

    return mutate


def _field(head: bytearray, chance: random.Random, change: Blind) -> None:
    match chance.randint(0, 6):
        case 0:
            head[156] = chance.choice(_KINDS)
        case 1:
            head[0:100] = chance.choice(_NAMES).ljust(100, b"\0")[:100]
        case 2:
            head[124:136] = chance.choice(_NUMBERS).ljust(12, b"\0")
        case 3:
            head[124:136] = b"%011o\0" % chance.choice((0, 1, 100, 511, 512, 513, 1024, 65536, 65537))
        case 4:
            head[345:500] = change(bytes(head[345:500]), 155).ljust(155, b"\0")[:155]
        case 5:
            head[0:100] = change(bytes(head[0:100]).rstrip(b"\0"), 100).ljust(100, b"\0")
        case _:
            # Also the body of a pax header, when this block is no header at all.
            head[:] = change(bytes(head), BLOCK).ljust(BLOCK, b"\0")[:BLOCK]


def _seal(head: bytearray) -> None:
    """Write the sum of a header (POSIX.1-2017 pax, "ustar Interchange Format")."""
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
