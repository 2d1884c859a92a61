"""NaCl's secretbox, opening only: in it lie the private keys that cosign writes. XSalsa20 in Python, Poly1305 not.

`cryptography` has ChaCha20 and Poly1305 but no Salsa20, and a key is a few blocks of 64 bytes: not worth a dependency.
The ciphertext is a file of the person who signs, read once in a process that ends; nobody can time it.
Source: D. J. Bernstein, "Cryptography in NaCl" and "Extending the Salsa20 nonce".
"""

import struct
from collections.abc import Iterator, Sequence

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.poly1305 import Poly1305

KEY_BYTES, NONCE_BYTES, TAG_BYTES = 32, 24, 16
_BLOCK = 64
_SIGMA = struct.unpack("<4I", b"expand 32-byte k")
_QUARTERS = (
    *((0, 4, 8, 12), (5, 9, 13, 1), (10, 14, 2, 6), (15, 3, 7, 11)),
    *((0, 1, 2, 3), (5, 6, 7, 4), (10, 11, 8, 9), (15, 12, 13, 14)),
)
"""Columns, then rows: where the four words of each quarter round stand."""
_DOUBLE_ROUNDS = 10


class WrongKey(Exception):
    """The box was not closed with this key, or was changed since."""


def open_box(key: bytes, nonce: bytes, box: bytes) -> bytes:
    """Return what is in a box.

    Raises:
        WrongKey: the key does not open it.
        ValueError: key, nonce or box have an impossible length.
    """
    if len(key) != KEY_BYTES or len(nonce) != NONCE_BYTES or len(box) < TAG_BYTES:
        raise ValueError("a box has a key of 32 bytes, a nonce of 24 and a tag of 16")
    tag, hidden = box[:TAG_BYTES], box[TAG_BYTES:]
    # The first 32 bytes of the stream are the key of the tag, the text begins behind them.
    stream = b"".join(_stream(key, nonce, -(-(KEY_BYTES + len(hidden)) // _BLOCK)))
    try:
        Poly1305.verify_tag(stream[:KEY_BYTES], hidden, tag)
    except InvalidSignature as error:
        raise WrongKey from error
    return bytes(a ^ b for a, b in zip(hidden, stream[KEY_BYTES:], strict=False))


def _stream(key: bytes, nonce: bytes, blocks: int) -> Iterator[bytes]:
    """Yield blocks of XSalsa20's key stream."""
    mixed = _rounds(_state(struct.unpack("<8I", key), struct.unpack("<4I", nonce[:16])))
    # HSalsa20: the diagonal and the place of the nonce, without the final addition.
    short = [mixed[position] for position in (0, 5, 10, 15, 6, 7, 8, 9)]
    for number in range(blocks):
        state = _state(short, (*struct.unpack("<2I", nonce[16:]), number & 0xFFFFFFFF, number >> 32))
        words = [(a + b) & 0xFFFFFFFF for a, b in zip(state, _rounds(state), strict=True)]
        yield struct.pack("<16I", *words)


def _state(key: Sequence[int], position: Sequence[int]) -> list[int]:
    return [_SIGMA[0], *key[:4], _SIGMA[1], *position, _SIGMA[2], *key[4:], _SIGMA[3]]


def _rounds(state: Sequence[int]) -> list[int]:
    x = list(state)
    for _ in range(_DOUBLE_ROUNDS):
        for a, b, c, d in _QUARTERS:
            x[b] ^= _rotated(x[a] + x[d], 7)
            x[c] ^= _rotated(x[b] + x[a], 9)
            x[d] ^= _rotated(x[c] + x[b], 13)
            x[a] ^= _rotated(x[d] + x[c], 18)
    return x


def _rotated(word: int, bits: int) -> int:
    word &= 0xFFFFFFFF
    return (word << bits | word >> (32 - bits)) & 0xFFFFFFFF
