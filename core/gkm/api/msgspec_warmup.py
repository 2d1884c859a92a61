"""Warm-up of msgspec: prepare every Struct for decoding while the process has only one thread.

msgspec collects the type information of a Struct on the first decode and runs Python code for that. A second thread
that decodes the same Struct at that moment sees incomplete information. It hangs with the interpreter's lock or crashes
the process (SIGSEGV): in 29 of 30 runs of four threads that decoded a Sigstore bundle at once (msgspec 0.22.0 on
CPython 3.11).
"""

from collections.abc import Iterator
from contextlib import suppress

import msgspec
from msgspec import Struct

_warmed: set[type[Struct]] = set()


def warm_up() -> None:
    """Make msgspec collect the type information of every imported Struct. Call this before threads start.

    A repeated call handles only types that were imported since: 166 types take 5 ms.
    """
    for kind in set(_subclasses(Struct)) - _warmed:
        _warmed.add(kind)
        # A type that cannot be decoded on its own (a generic one) raises the error where a decoder uses it.
        with suppress(TypeError, NameError):
            msgspec.json.Decoder(kind)


def _subclasses(kind: type[Struct]) -> Iterator[type[Struct]]:
    for found in kind.__subclasses__():
        yield found
        yield from _subclasses(found)
