"""Sizes as Kubernetes writes them (apimachinery pkg/api/resource, "Quantity"), as far as a size of bytes needs it."""

import re
from typing import Final

_PATTERN: Final = re.compile(r"(?P<number>[0-9]{1,15})(?P<unit>Ki|Mi|Gi|Ti|k|M|G|T)?", re.ASCII)
_UNITS: Final = {
    None: 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
    "Ti": 1 << 40,
}


def parse_bytes(text: str) -> int | None:
    """Return how many bytes `text` says, None where it is no whole number with a unit that a size can have."""
    match = _PATTERN.fullmatch(text)
    return int(match["number"]) * _UNITS[match["unit"]] if match else None


def format_bytes(size: int) -> str:
    """Return a size in the largest binary unit that divides it."""
    units = [unit for unit in ("Ti", "Gi", "Mi", "Ki") if size and size % _UNITS[unit] == 0]
    return f"{size // _UNITS[units[0]]}{units[0]}" if units else str(size)
