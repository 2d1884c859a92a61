"""The manifests of a release, for people without Helm: install.yaml, and an archive of the directories."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from kustomizations.directories import COMPONENTS, OVERLAYS
from kustomizations.rendering import generated

INSTALL = "install.yaml"


def archive(version: str) -> str:
    """Return the name of the archive, which holds one directory, `deploy`."""
    return f"gkm-manifests-{version}.tgz"


def write_all(directory: Path, version: str) -> None:
    """Render the chart, and write both."""
    pack(directory, version, generated(COMPONENTS, OVERLAYS))


def pack(directory: Path, version: str, found: Mapping[Path, str]) -> None:
    """Write both from files by their paths; the same files make the same archive but for the time in gzip's header."""
    (directory / INSTALL).write_text(found[Path(INSTALL)], encoding="utf-8")
    with tarfile.open(directory / archive(version), "w:gz") as tar:
        for path, text in sorted(found.items()):
            data = text.encode()
            member = tarfile.TarInfo(f"deploy/{path}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def images(text: str) -> set[str]:
    """Return the images of GKM that a manifest names."""
    lines = (line.strip().removeprefix("- ") for line in text.splitlines())
    return {line.removeprefix("image: ").strip('"') for line in lines if line.startswith("image: ")}
