"""`gkm cache push`: store a local image in a registry."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from gkm.api.grammar import count_of
from gkm.images.archives import sources
from gkm.images.reference import Reference
from gkm.images.signing import attached

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
    """Push the image in PATH, an OCI layout or a docker-archive, as REF, with the signatures in the layout."""
    ref = Reference.parse(reference)
    registry = access.registry(ref, mirrored=False)
    with tempfile.TemporaryDirectory(prefix="gkm-push-") as work, progress_bars("Pushing") as report:
        with disks.filling(Path(work), lambda: path.stat().st_size):
            image = sources.open_image(path, Path(work))
        digest = attached.push_image(registry, ref, image, lambda done, of: report("Pushing", done, of))
    beside = [{"digest": each.content.digest, "subject": each.subject} for each in image.attached]
    with_them = f" with {count_of(len(beside), 'artifact')} attached" if beside else ""
    result = {"image": str(ref), "digest": digest, "attached": beside}
    show(result, output, lambda: line(f"{ref.name}@{digest} pushed{with_them}"))
