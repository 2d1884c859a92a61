"""One row of the hostile suite."""

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
    """One attack. `effect` is what it does to a weak reader, if not obvious; the error contains `message`."""

    name: str
    group: int
    setup: Callable[[Scene], object] = field(repr=False)
    reason: Reason
    message: str
    cve: str = ""
    effect: str = ""
    tls: bool = False
    parts: bool = False
    """Whether a partial blob may stay for the next attempt to resume."""
    bounds: Mapping[str, int] = field(default_factory=dict)
    """Lowered bounds, by module and name: an image at the real bound takes minutes to generate."""

    def __str__(self) -> str:
        return f"{self.group}-{self.name}{f'-{self.cve}' if self.cve else ''}".replace(" ", "-")
