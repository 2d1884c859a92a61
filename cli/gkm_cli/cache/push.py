"""`gkm cache push`: store a local image in a registry."""

from pathlib import Path
from typing import Annotated

import typer
from gkm.api.grammar import count_of
from gkm.images import local_reference
from gkm.images.archives import local_source

from gkm_cli.cache.copy import copied
from gkm_cli.output import Output, OutputOption, line, show
from gkm_cli.registries import RefArgument, RegistryAccess

PathArgument = Annotated[
    str,
    typer.Argument(
        metavar="PATH", help="An OCI layout or a docker-archive; also as oci:PATH:TAG, docker-archive:FILE."
    ),
]


def push(
    path: PathArgument, reference: RefArgument, *, access: RegistryAccess, output: OutputOption = Output.TABLE
) -> None:
    """Push the image in PATH, an OCI layout or a docker-archive, as REF, with the signatures in the layout."""
    ref = local_reference.parse(reference)
    origin = local_reference.parse_local(path) or local_source.reference_to(Path(path))
    digest, artifacts = copied(access, origin, ref, "Pushing")
    beside = [{"digest": each.manifest.digest, "subject": each.subject} for each in artifacts]
    with_them = f" with {count_of(len(beside), 'artifact')} attached" if beside else ""
    result = {"image": str(ref), "digest": digest, "attached": beside}
    show(result, output, lambda: line(f"{ref.name}@{digest} pushed{with_them}"))
