"""Warm-up of msgspec: prepare every Struct for decoding while the process has only one thread.

msgspec collects the type information of a Struct on the first decode and runs Python code for that. A second thread
that decodes the same Struct at that moment sees incomplete information. It hangs with the interpreter's lock or crashes
the process (SIGSEGV): in 29 of 30 runs of four threads that decoded a Sigstore bundle at once (msgspec 0.22.0 on
CPython 3.11).

A generic Struct (`Review[Pod]`) has such information for each of its aliases, and no list of aliases exists: use no
generic Struct.
"""

from collections.abc import Iterator

import msgspec
from msgspec import Struct

_warmed: set[type[Struct]] = set()


def warm_up() -> None:
    """Make msgspec collect the type information of every imported Struct.

    Call this when all modules are imported, and before threads start. A repeated call handles only types that were
    imported since: 166 types take 5 ms.

    Raises:
        TypeError, NameError: a type is generic, or an annotation of a field has no meaning to msgspec.
    """
    for kind in unprepared():
        if getattr(kind, "__parameters__", ()):
            raise TypeError(f"{kind.__name__} is generic: msgspec prepares each alias of it at its first decode")
        msgspec.json.Decoder(kind)
        _warmed.add(kind)


def unprepared() -> set[type[Struct]]:
    """Return the imported struct types that `warm_up` has not prepared yet."""
    return set(_subclasses(Struct)) - _warmed


def _subclasses(kind: type[Struct]) -> Iterator[type[Struct]]:
    for found in kind.__subclasses__():
        yield found
        yield from _subclasses(found)
