"""What a row of the hostile suite says."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gkm.api.errors import Reason
from support.images.hostile_scene import Scene

MAX_BYTES = 8 << 20
"""How large an image may be, in all rows."""
MIB = 1 << 20
UNSAFE, WRONG, INVALID = Reason.UNSAFE_CONTENT, Reason.DIGEST_MISMATCH, Reason.METADATA_INVALID
AWAY, DAMAGED, LARGE = Reason.REGISTRY_UNAVAILABLE, Reason.CONTENT_MISMATCH, Reason.TOO_LARGE


@dataclass(frozen=True)
class Row:
    """One attack. `would` says what it would have done, where that is not plain; `says` stands in the message."""

    name: str
    group: int
    place: Callable[[Scene], object] = field(repr=False)
    reason: Reason
    says: str
    cve: str = ""
    would: str = ""
    tls: bool = False
    parts: bool = False
    """Whether a part of a blob may stay, for the next try to go on with."""
    bounds: Mapping[str, int] = field(default_factory=dict)
    """Bounds that are lowered, by module and name: an image that reaches the real one takes minutes to make."""

    def __str__(self) -> str:
        return f"{self.group}-{self.name}{f'-{self.cve}' if self.cve else ''}".replace(" ", "-")
