"""How many faults of an installation `gkm doctor` finds by their names alone, of those that the tests plant."""

import tempfile
from pathlib import Path

from support.cli.installed_site import InstalledSite, installed
from support.cli.seeded_faults import FAULTS


def doctor_found() -> dict[str, float]:
    """Install GKM on a real API server and plant each fault; `doctor_healthy` counts findings without one."""
    with tempfile.TemporaryDirectory(prefix="gkm-doctor-") as directory, installed(Path(directory)) as site:
        healthy = len(site.findings()[1])
        found = sum(_is_found(site, name) for name in FAULTS)
    return {"doctor_found": found, "doctor_seeded": len(FAULTS), "doctor_healthy": healthy}


def _is_found(site: InstalledSite, name: str) -> bool:
    with FAULTS[name](site):
        _, found = site.findings()
    return [check for severity, check, _ in found if severity != "not checked"] == [name]
