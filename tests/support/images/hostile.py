"""The hostile suite as one table: what a registry or an image does, and what a person is told for it.

The classes are those of prior-art/oci-and-signatures.md, "Hostile suite to survive". Where the attack lies in the
content, the image is validly signed: nothing but the reader stands between it and the disk.
"""

from support.images.hostile_contents import CONFLICTS, KINDS, NAMES, SIZES
from support.images.hostile_registries import BYTES, CLAIMS, MANIFESTS, PLACES, WEAK
from support.images.hostile_row import MAX_BYTES, Row

__all__ = ("CVES", "MAX_BYTES", "ROWS", "Row")

ROWS = (*MANIFESTS, *BYTES, *PLACES, *SIZES, *NAMES, *KINDS, *CONFLICTS, *CLAIMS, *WEAK)
CVES = frozenset(
    {
        "CVE-2026-48978",
        "CVE-2026-50151",
        "GHSA-vh4v-2xq2-g5cg",
        "CVE-2020-15157",
        "CVE-2021-32760",
        "CVE-2026-53488",
        "CVE-2024-3727",
        "CVE-2022-36056",
        "CVE-2026-22703",
        "CVE-2025-4517",
        "CVE-2024-12718",
        "CVE-2025-4138",
        "CVE-2025-4330",
        "CVE-2025-4435",
    }
)
"""Those that prior-art names. CVE-2026-50151 is about pushing: its test is beside the table's."""
