"""`gkm cache build`: make an image from the cache directory of a workload."""

import json
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from gkm.api.grammar import count_of
from gkm.hoststate.command_line import installed_version
from gkm.hoststate.escaping import escape
from gkm.images.archives import docker_archive, oci_layout
from gkm.images.assembly import image as images
from gkm.images.assembly.contents import CacheContents, scan_cache
from gkm.images.assembly.provenance import LOCAL_BUILDER, CacheBuild, statement
from gkm.images.assembly.versions import DependencyVersions
from gkm.images.cache_entries import entries_in
from gkm.images.local_image import LocalImage
from gkm.images.reference import Reference
from gkm.images.registries import push as registry_push

from gkm_cli import disks
from gkm_cli.cache.machines import GPUOption, GPUsOption, gpu_from_options
from gkm_cli.output import Output, OutputOption, UsageError, line, show
from gkm_cli.progress import progress_bars
from gkm_cli.registries import RegistryAccess

DirectoryArgument = Annotated[Path, typer.Argument(metavar="DIR", exists=True, file_okay=False)]
ImageOption = Annotated[str, typer.Option("--image", metavar="REF", help="The name of the image.")]
AllFilesOption = Annotated[
    bool,
    typer.Option(
        "--all-files", help="Pack also the files that no runtime wrote as a cache; never a private key or a token."
    ),
]
StrictOption = Annotated[
    bool, typer.Option("--strict", help="Refuse a cache with an incomplete or damaged kernel; else it stays out.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show what the image would have and what stays out; make no image.")
]
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
_MAX_SHOWN = 20
"""Kernels by name on a terminal; JSON has them all."""


def build(
    directory: DirectoryArgument,
    *,
    image: ImageOption = "",
    to: ToOption = "",
    push: PushOption = False,
    gpu: GPUOption = "",
    gpus: GPUsOption = None,
    dependency_version: VersionOption = None,
    all_files: AllFilesOption = False,
    strict: StrictOption = False,
    dry_run: DryRunOption = False,
    provenance: ProvenanceOption = None,
    builder: BuilderOption = "",
    access: RegistryAccess,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make an image of the Triton, vLLM or TorchInductor cache in DIR, in MCV's format."""
    targets = gpu_from_options(gpu, gpus)
    versions, started = DependencyVersions.parse(dependency_version or []), datetime.now(UTC)
    if dry_run:
        contents = scan_cache(directory, targets, versions, all_files=all_files, strict=strict)
        described = _described(contents)
        show(described, output, lambda: _print_contents(described, contents))
        return
    ref, form, path = _destination(image, to, push=push)
    if provenance:
        disks.check_new(provenance, "--provenance")
    elif builder:
        raise UsageError("--builder is for --provenance", "name a file with --provenance")
    packing = disks.filling(Path(tempfile.gettempdir()), lambda: disks.size_of(directory))
    with packing, tempfile.TemporaryDirectory(prefix="gkm-build-") as work, progress_bars(*_STAGES) as report:
        contents = scan_cache(directory, targets, versions, all_files=all_files, strict=strict)
        built = images.pack(
            directory,
            contents,
            ref.repository.rpartition("/")[2],
            Path(work),
            versions=versions,
            report=lambda done, of: report("Packing", done, of),
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
    for warning in (*images.warnings(contents), *_left_out_lines(contents)):
        sys.stderr.write(f"warning: {escape(warning)}\n")
    result = _result(ref, built) | {"leftOut": _left_out(contents)}
    show(result, output, lambda: line(f"{ref.name}@{built.digest} {_summary(to, push=push)}"))


def _result(ref: Reference, built: LocalImage) -> dict[str, Any]:
    manifest = json.loads(built.manifest)
    return {
        "image": str(ref),
        "digest": built.digest,
        "layers": manifest["layers"],
        "labels": built.labels,
        "manifest": manifest,
    }


def _described(contents: CacheContents) -> dict[str, Any]:
    """Return what an image of the cache would have."""
    return {
        "format": contents.format.value,
        "size": contents.size_bytes,
        "targets": json.loads(contents.labels[contents.format.summary_label])["targets"],
        "entries": [
            {"form": each.form, "hash": each.hash, "arch": each.arch} for each in entries_in(contents.manifest)
        ],
        "labels": contents.labels,
        "leftOut": _left_out(contents),
        "damaged": contents.damaged,
        "warnings": images.warnings(contents),
    }


def _left_out(contents: CacheContents) -> list[dict[str, Any]]:
    return [
        {"kind": kind.value, "count": found.count, "bytes": found.bytes, "examples": found.examples}
        for kind, found in contents.left_out.kinds.items()
    ]


def _left_out_lines(contents: CacheContents) -> list[str]:
    """Return a line for each kind of files that stay out, and one for each damaged kernel."""
    kinds = [
        f"left out {found.count} of {kind.value} ({found.bytes} bytes): {', '.join(found.examples)}"
        + (", …" if found.count > len(found.examples) else "")
        for kind, found in contents.left_out.kinds.items()
    ]
    damaged = [f"kernel {path}: {problem}" for path, problem in list(contents.damaged.items())[:_MAX_SHOWN]]
    return [*kinds, *damaged]


def _print_contents(described: dict[str, Any], contents: CacheContents) -> None:
    line(f"format   {described['format']}, {contents.size_bytes} bytes")
    for target in described["targets"]:
        line(f"target   {' '.join(f'{key}={value}' for key, value in target.items())}")
    for entry in described["entries"][:_MAX_SHOWN]:
        line(f"entry    {entry['form']} {entry['hash']} {entry['arch']}".rstrip())
    if (more := len(described["entries"]) - _MAX_SHOWN) > 0:
        line(f"entry    and {count_of(more, 'more entry', 'more entries')}: -o json lists all")
    for text in (*described["warnings"], *_left_out_lines(contents)):
        line(escape(text))


def _destination(image: str, to: str, *, push: bool) -> tuple[Reference, str, Path]:
    """Return the name of the image, and the form and path of `--to`.

    Raises:
        UsageError: an option is missing, the form is unknown, or the path cannot be written.
    """
    if not image:
        raise UsageError("the image has no name", "add --image registry.example/team/cache:1")
    form, _, path = to.partition(":")
    if to and (form not in _WRITERS or not path):
        raise UsageError(f"--to {to[:80]!r} is not a destination", "write oci:PATH or docker-archive:FILE")
    if not (form or push):
        raise UsageError("the image has no destination", "add --push, --to oci:PATH or --to docker-archive:FILE")
    if form:
        disks.check_new(Path(path), "--to")
    return Reference.parse(image), form, Path(path)


def _summary(to: str, *, push: bool) -> str:
    return " and ".join([*([f"written to {to}"] if to else []), *(["pushed"] if push else [])])
