"""`gkm cache push`: store a local image in a registry."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from gkm.images.archives import sources
from gkm.images.reference import Reference
from gkm.images.registries import push as registry_push

from gkm_cli import disks
from gkm_cli.output import Output, OutputOption, line, show
from gkm_cli.progress import progress_bars
from gkm_cli.registries import RefArgument, RegistryAccess

PathArgument = Annotated[Path, typer.Argument(metavar="PATH", help="An OCI layout or a docker-archive.")]


def push(
    path: PathArgument,
    reference: RefArgument,
    *,
    access: RegistryAccess,
    output: OutputOption = Output.TABLE,
) -> None:
    """Push the image in PATH, an OCI layout or a docker-archive, as REF."""
    ref = Reference.parse(reference)
    registry = access.registry(ref)
    with tempfile.TemporaryDirectory(prefix="gkm-push-") as work, progress_bars("Pushing") as report:
        with disks.filling(Path(work), lambda: path.stat().st_size):
            image = sources.open_image(path, Path(work))
        digest = registry_push.image(registry, ref, image, lambda done, of: report("Pushing", done, of))
    show({"image": str(ref), "digest": digest}, output, lambda: line(f"{ref.name}@{digest} pushed"))
