"""References to images on this machine: `oci:PATH[:TAG]` and `docker-archive:FILE[:REF]`, and `@sha256:…` behind them.

The grammar is that of containers-transports(5): the path ends at the first colon.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from gkm.api.errors import GKMError, Reason
from gkm.images.reference import Reference

LAYOUT, ARCHIVE = "oci", "docker-archive"
FORMS = (f"{LAYOUT}:", f"{ARCHIVE}:")
"""The beginnings of a reference to an image on this machine."""
MAX_LENGTH = 4096 + 400
"""A path has at most 4,096 bytes."""
_LOCAL = re.compile(
    rf"(?P<form>{LAYOUT}|{ARCHIVE}):(?P<path>[^:\x00-\x1f\x7f]+?)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._:/+-]{0,254}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)


@dataclass(frozen=True, slots=True)
class LocalReference(Reference):
    """A reference to an image in a layout or archive.

    `registry` is the form (oci or docker-archive), `repository` the path. Without tag and digest it names the only
    image there.
    """

    @property
    def path(self) -> Path:
        """Return the path of the layout or archive on this machine."""
        return Path(self.repository)

    @property
    def name(self) -> str:
        """Return the reference as text without tag and digest."""
        return f"{self.registry}:{self.repository}"

    @property
    def identity(self) -> str:
        """Return "": a signature must not name a path of this machine."""
        return ""

    def in_repository(self, name: str) -> Reference:  # noqa: ARG002 -- as in Reference
        """Return this reference itself: a layout holds the signatures of its images."""
        return self


def parse(text: str) -> Reference:
    """Return the reference in `text`, to an image on this machine or in a registry.

    Raises:
        GKMError: INVALID_REFERENCE.
    """
    return parse_local(text) or Reference.parse(text)


def parse_local(text: str) -> LocalReference | None:
    """Return the reference in `text` to an image on this machine; None for an image in a registry.

    Raises as `parse`.
    """
    if not text.startswith(FORMS):
        return None
    found = _LOCAL.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if found is None:
        raise GKMError(
            Reason.INVALID_REFERENCE,
            f"{text[:120]!r} is not a reference to a layout or an archive: its path or tag cannot be one",
            f"write {LAYOUT}:PATH:TAG, {ARCHIVE}:FILE:REF or {LAYOUT}:PATH@sha256:…",
        )
    return LocalReference(found["form"], found["path"], found["tag"], found["digest"])
