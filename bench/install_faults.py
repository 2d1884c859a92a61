"""How many faults of an installation `gkm doctor` finds by their names alone, of those that the tests plant."""

import tempfile
from itertools import islice
from pathlib import Path

from support.cli.installed_site import InstalledSite, installed
from support.cli.seeded_faults import FAULTS


def doctor_found(count: int) -> dict[str, float]:
    """Install GKM on a real API server and plant each of the first faults; `doctor_healthy` counts findings without."""
    with tempfile.TemporaryDirectory(prefix="gkm-doctor-") as directory, installed(Path(directory)) as site:
        healthy = len(site.findings()[1])
        found = sum(_is_found(site, name) for name in islice(FAULTS, count))
    return {"doctor_found": float(found), "doctor_seeded": float(count), "doctor_healthy": float(healthy)}


def _is_found(site: InstalledSite, name: str) -> bool:
    with FAULTS[name](site):
        _, found = site.findings()
    return [check for severity, check, _ in found if severity != "not checked"] == [name]
