"""The image of one cache directory, in one step."""

from collections.abc import Sequence
from pathlib import Path

from gkm.api.targets import GpuTarget
from gkm.images.assembly.contents import scan_directory
from gkm.images.assembly.image import pack
from gkm.images.assembly.selection import EVERYTHING, Selection
from gkm.images.assembly.versions import DependencyVersions
from gkm.images.local_image import LocalImage, ProgressCallback


def build(
    directory: Path,
    title: str,
    work: Path,
    *,
    stated: Sequence[GpuTarget] = (),
    versions: DependencyVersions | None = None,
    selected: Selection = EVERYTHING,
    report: ProgressCallback = lambda _done, _of: None,
) -> LocalImage:
    """Return the image of the selected files of a cache; raise as `scan_directory` and `pack`."""
    versions = versions or DependencyVersions()
    contents = scan_directory(directory, stated, versions, selected)
    return pack([contents], title, work, versions=versions, report=report)
