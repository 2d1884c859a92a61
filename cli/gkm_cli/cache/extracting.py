"""Content into a directory that a person named: beside it first, then one rename; a bar shows how far it is."""

import shutil
import sys
import tempfile
from pathlib import Path

from gkm.hoststate.layout import Layout
from gkm.images import entry, pull
from gkm.images.cache import CacheImage
from gkm.images.extract import Extraction
from gkm.images.pull import Stage
from gkm.images.registry import Registry
from rich.console import Console
from rich.progress import Progress


def extract(registry: Registry, image: CacheImage, to: Path, max_bytes: int) -> Extraction:
    """Return what was extracted into the new directory `to`; on any failure it is not there.

    Raises:
        GKMError: as gkm.images.pull.
        OSError: the disk refused.
    """
    to.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{to.name}-", dir=to.parent))
    try:
        # A bar on a terminal only: it goes to standard error, and into no pipe.
        with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True) as progress:
            bars = {stage: progress.add_task(stage.value, total=100) for stage in Stage}
            made = pull.extract(
                registry,
                image,
                Layout(work / "state", work / "run"),
                work,
                max_bytes=max_bytes,
                progress=lambda stage, percent: progress.update(bars[stage], completed=percent),
            )
        content = work / entry.CONTENT
        _open(content)
        content.rename(to)
        return made
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _open(directory: Path) -> None:
    """Give the files a person's usual modes: this is a copy, not the store."""
    for path in [directory, *directory.rglob("*")]:
        path.chmod(path.stat().st_mode | (0o755 if path.is_dir() else 0o644))
