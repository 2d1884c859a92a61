"""The hostile suite as one table: each row is an attack by a registry or an image, and the error that the user sees.

Rows in groups 4 to 7 attack with the content of an image that has a valid signature, so only the reader protects the
disk.
"""

from support.images.hostile_contents import CONFLICTS, KINDS, NAMES, SIZES
from support.images.hostile_networks import NETWORKS
from support.images.hostile_registries import BYTES, CLAIMS, MANIFESTS, PLACES
from support.images.hostile_row import MAX_BYTES, Row

__all__ = ("CVES", "MAX_BYTES", "ROWS", "Row")

ROWS = (*MANIFESTS, *BYTES, *PLACES, *SIZES, *NAMES, *KINDS, *CONFLICTS, *CLAIMS, *NETWORKS)
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
"""CVEs of the table. CVE-2026-50151 is about pushing: its test is beside the table's."""
