"""A decoder of JSON from outside: how to call it, the type it decodes to, and how many bytes it may be given."""

from collections.abc import Callable
from typing import Any, NamedTuple

MIB = 1 << 20
OBJECT_BYTES = 3 * MIB // 2
"""What etcd takes of an object."""
OBJECT_FACTOR = 40
"""An object of Kubernetes has passed the API server's validation: the schema limits lists and drops what it does not
know, labels are ASCII. This is what one object, or one page, would take if it did not. No density may be demanded of
objects: a valid pod with thousands of empty arguments would make the list of all pods unreadable."""


class Decoder(NamedTuple):
    """`kind` is the type that hostile texts are made for, `limit` how many bytes the program reads at most."""

    name: str
    call: Callable[[bytes], object]
    kind: Any
    limit: int
    free: int = 3 * MIB // 2
    """How much it may take however short the text is, with what the allocator rounds up."""
    factor: int = 8
    """How many times the bytes of the text it may take beyond that."""

    def allowed(self, size: int) -> int:
        """Return how many bytes it may take for a text of `size` bytes."""
        return self.free + self.factor * size
