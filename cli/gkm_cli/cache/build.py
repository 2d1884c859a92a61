"""`gkm cache build`: make an image from the cache directory of a workload."""

import json
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from gkm.hoststate.command_line import installed_version
from gkm.hoststate.escaping import escape
from gkm.images.archives import docker_archive, oci_layout
from gkm.images.build.image import build as build_image
from gkm.images.build.provenance import LOCAL_BUILDER, CacheBuild, statement
from gkm.images.build.versions import DependencyVersions
from gkm.images.local_image import LocalImage
from gkm.images.reference import Reference
from gkm.images.registries import push as registry_push

from gkm_cli import disks
from gkm_cli.cache.gpu_options import GPUOption, GPUsOption, gpu_from_options
from gkm_cli.output import Output, OutputOption, UsageError, line, show
from gkm_cli.progress import progress_bars
from gkm_cli.registries import RegistryAccess

DirectoryArgument = Annotated[Path, typer.Argument(metavar="DIR", exists=True, file_okay=False)]
ImageOption = Annotated[str, typer.Option("--image", metavar="REF", help="The name of the image.")]
ToOption = Annotated[
    str,
    typer.Option(
        "--to", metavar="oci:PATH|docker-archive:FILE", help="Write the image there; the path must not exist."
    ),
]
PushOption = Annotated[bool, typer.Option("--push", help="Push the image to its registry.")]
VersionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--dependency-version",
        metavar="NAME=VERSION",
        help="A package and version that compiled the cache; repeatable.",
    ),
]
ProvenanceOption = Annotated[
    Path | None,
    typer.Option(
        "--provenance",
        metavar="FILE",
        help="Write a SLSA provenance of the image there, for gkm cache attest; the file must not exist.",
    ),
]
BuilderOption = Annotated[
    str, typer.Option("--builder", metavar="URI", help="Who builds, as the provenance names it: the id of your CI.")
]
_STAGES = ("Packing", "Writing", "Pushing")
_WRITERS = {"oci": oci_layout.write, "docker-archive": docker_archive.write}


def build(
    directory: DirectoryArgument,
    *,
    image: ImageOption,
    to: ToOption = "",
    push: PushOption = False,
    gpu: GPUOption = "",
    gpus: GPUsOption = None,
    dependency_version: VersionOption = None,
    provenance: ProvenanceOption = None,
    builder: BuilderOption = "",
    access: RegistryAccess,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make an image of the Triton, vLLM or TorchInductor cache in DIR, in MCV's format."""
    ref = Reference.parse(image)
    form, path = _destination(to)
    if not (form or push):
        raise UsageError("the image has no destination", "add --push, --to oci:PATH or --to docker-archive:FILE")
    if provenance:
        disks.check_new(provenance, "--provenance")
    elif builder:
        raise UsageError("--builder is for --provenance", "name a file with --provenance")
    targets = gpu_from_options(gpu, gpus)
    versions, started = DependencyVersions.parse(dependency_version or []), datetime.now(UTC)
    warnings: list[str] = []
    packing = disks.filling(Path(tempfile.gettempdir()), lambda: disks.size_of(directory))
    with packing, tempfile.TemporaryDirectory(prefix="gkm-build-") as work, progress_bars(*_STAGES) as report:
        built = build_image(
            directory,
            ref.repository.rpartition("/")[2],
            Path(work),
            stated=targets,
            versions=versions,
            report=lambda done, of: report("Packing", done, of),
            warn=warnings.append,
        )
        if form:
            need = sum(blob.descriptor.size for blob in built.blobs)
            disks.check_free(path.absolute().parent, need)
            with disks.filling(path.absolute().parent, lambda: max(need, disks.size_of(directory))):
                _WRITERS[form](built, path, ref, lambda done, of: report("Writing", done, of))
        if provenance:
            program, finished = installed_version(), datetime.now(UTC)
            made = CacheBuild(targets, versions, builder or LOCAL_BUILDER, program, started, finished)
            provenance.write_bytes(statement(ref, built, made))
        if push:
            registry = access.registry(ref)
            registry_push.image(registry, ref, built, lambda done, of: report("Pushing", done, of))
    for warning in warnings:
        sys.stderr.write(f"warning: {escape(warning)}\n")
    show(_result(ref, built), output, lambda: line(f"{ref.name}@{built.digest} {_summary(to, push=push)}"))


def _result(ref: Reference, built: LocalImage) -> dict[str, object]:
    manifest = json.loads(built.manifest)
    return {
        "image": str(ref),
        "digest": built.digest,
        "layers": manifest["layers"],
        "labels": built.labels,
        "manifest": manifest,
    }


def _destination(to: str) -> tuple[str, Path]:
    """Return the form and the path of `--to`.

    Raises:
        UsageError: the form is unknown, or the path cannot be written.
    """
    form, _, path = to.partition(":")
    if to and (form not in _WRITERS or not path):
        raise UsageError(f"--to {to[:80]!r} is not a destination", "write oci:PATH or docker-archive:FILE")
    if form:
        disks.check_new(Path(path), "--to")
    return form, Path(path)


def _summary(to: str, *, push: bool) -> str:
    return " and ".join([*([f"written to {to}"] if to else []), *(["pushed"] if push else [])])
