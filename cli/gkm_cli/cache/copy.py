"""`gkm cache copy`: copy an image with its signatures, attestations and referrers."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from gkm.api.grammar import count_of
from gkm.images import local_reference
from gkm.images.copying import Artifact, ImageCopy
from gkm.images.reference import Reference

from gkm_cli import disks
from gkm_cli.output import Output, OutputOption, UsageError, line, show
from gkm_cli.progress import progress_bars
from gkm_cli.registries import RegistryAccess, signature_repository

DestinationArgument = Annotated[
    str, typer.Argument(metavar="DST", help="registry/repository:tag, or oci:PATH:TAG; a layout may be new.")
]


def copy(
    source: Annotated[
        str, typer.Argument(metavar="SRC", help="The image: a reference, oci:PATH or docker-archive:FILE.")
    ],
    destination: DestinationArgument,
    *,
    access: RegistryAccess,
    output: OutputOption = Output.TABLE,
) -> None:
    """Copy the image SRC to DST with its signatures, attestations and referrers; what DST has is not sent again."""
    origin, ref = local_reference.parse(source), local_reference.parse(destination)
    digest, artifacts = copied(access, origin, ref, "Copying")
    result = {
        "source": str(origin),
        "image": str(ref),
        "digest": digest,
        "attached": [
            {
                "digest": each.manifest.digest,
                "subject": each.subject,
                "tag": ref.pinned(each.subject).tag_of_digest(each.suffix).tag if each.suffix else "",
            }
            for each in artifacts
        ],
    }
    summary = f"{ref.name}@{digest} copied with {count_of(len(artifacts), 'artifact')} attached"
    show(result, output, lambda: line(summary))


def copied(access: RegistryAccess, origin: Reference, ref: Reference, stage: str) -> tuple[str, list[Artifact]]:
    """Copy an image from `origin` to `ref`; return its digest and the artifacts that were attached to it.

    Raises:
        UsageError: the destination cannot be written.
        GKMError, OSError: as ImageCopy.run.
    """
    if ref.digest:
        raise UsageError(f"{ref} is a digest", f"name a tag of the copy: {ref.name}:TAG")
    target, source = access.store(ref), access.source(origin)
    pinned = origin.pinned(source.resolve(origin))
    attached_at = pinned.in_repository(signature_repository())
    with tempfile.TemporaryDirectory(prefix="gkm-copy-") as work, progress_bars(stage) as report:
        copy_of_image = ImageCopy(
            source, pinned, attached_at, target, ref, Path(work), lambda done, of: report(stage, done, of)
        )
        with disks.filling(Path(work), lambda: 0):
            return pinned.target, copy_of_image.run()
