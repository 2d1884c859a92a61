"""Parse the WWW-Authenticate header of a 401 (RFC 9110, section 11), within bounds."""

import re
from dataclasses import dataclass

_SCHEME = re.compile(r"(?:^|,)\s{0,8}(bearer|basic)(?=\s|$)", re.IGNORECASE)
_PARAMETER = re.compile(r'([A-Za-z_]{1,32})\s{0,8}=\s{0,8}(?:"([^"\x00-\x1f]{0,1024})"|([^\s",]{1,1024}))')
_MAX_HEADER = 8 << 10


@dataclass(frozen=True, slots=True)
class Challenge:
    """A Basic challenge, or one for a Bearer token from `realm` for `service`. GKM determines the scope itself."""

    bearer: bool
    realm: str = ""
    service: str | None = None

    @classmethod
    def parse(cls, header: str) -> "Challenge | None":
        """Return the Bearer challenge of a header, else the Basic one; None for any other scheme."""
        header = header[:_MAX_HEADER]
        found = {match[1].lower(): match for match in reversed(list(_SCHEME.finditer(header)))}
        if match := found.get("bearer"):
            following = _SCHEME.search(header, match.end())
            text = header[match.end() : following.start() if following else None]
            parameters = {name.lower(): quoted or plain for name, quoted, plain in _PARAMETER.findall(text)}
            return cls(bearer=True, realm=parameters.get("realm", ""), service=parameters.get("service"))
        return cls(bearer=False) if "basic" in found else None
