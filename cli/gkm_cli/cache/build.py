"""`gkm cache build`: make an image from the cache directories of a workload."""

import json
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from gkm.api.grammar import count_of
from gkm.hoststate.command_line import installed_version
from gkm.hoststate.escaping import escape
from gkm.images import local_reference
from gkm.images.archives import docker_archive, oci_layout
from gkm.images.assembly import image as images
from gkm.images.assembly.contents import CacheContents
from gkm.images.assembly.provenance import LOCAL_BUILDER, CacheBuild, statement
from gkm.images.assembly.several import ScannedCaches, image_labels, scan_caches
from gkm.images.assembly.versions import DependencyVersions
from gkm.images.cache import common_targets
from gkm.images.cache_entries import entries_in
from gkm.images.local_image import LocalImage
from gkm.images.local_reference import ARCHIVE, LAYOUT, LocalReference
from gkm.images.reference import Reference
from gkm.images.registries import push as registry_push
from gkm.runtimes import BY_NAME
from gkm.runtimes.layout import FileKind
from gkm.runtimes.placement import joined

from gkm_cli import disks
from gkm_cli.cache.for_path import mount_path_of, rewritten
from gkm_cli.cache.machines import GPUOption, GPUsOption, gpu_from_options
from gkm_cli.output import Output, OutputOption, UsageError, line, show
from gkm_cli.progress import progress_bars
from gkm_cli.registries import RegistryAccess

DirectoriesArgument = Annotated[
    list[Path],
    typer.Argument(metavar="DIR...", exists=True, file_okay=False, help="Caches of different runtimes make one image."),
]
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
ForPathOption = Annotated[
    str,
    typer.Option(
        "--for-path",
        metavar="PATH",
        help="Write PATH into the files that name paths: where containers see the cache as an image volume.",
    ),
]
BuilderOption = Annotated[
    str, typer.Option("--builder", metavar="URI", help="Who builds, as the provenance names it: the id of your CI.")
]
_STAGES = ("Packing", "Writing", "Pushing")
_WRITERS = {LAYOUT: oci_layout.write, ARCHIVE: docker_archive.write}
_MAX_SHOWN = 20
"""Kernels by name on a terminal; JSON has them all."""


def build(
    directories: DirectoriesArgument,
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
    for_path: ForPathOption = "",
    provenance: ProvenanceOption = None,
    builder: BuilderOption = "",
    access: RegistryAccess,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make one image of the kernel caches in each DIR, for Triton and vLLM in MCV's format."""
    targets, mount_path = gpu_from_options(gpu, gpus), mount_path_of("--for-path", for_path)
    versions, started = DependencyVersions.parse(dependency_version or []), datetime.now(UTC)
    if dry_run:
        scanned = scan_caches(directories, targets, versions, all_files=all_files, strict=strict)
        described = _described(scanned)
        show(described, output, lambda: _print_contents(described, scanned))
        return
    ref, target = _destination(image, to, push=push)
    if provenance:
        disks.check_new(provenance, "--provenance")
    elif builder:
        raise UsageError("--builder is for --provenance", "name a file with --provenance")
    packing = disks.filling(Path(tempfile.gettempdir()), lambda: sum(map(disks.size_of, directories)))
    with packing, tempfile.TemporaryDirectory(prefix="gkm-build-") as work, progress_bars(*_STAGES) as report:
        scanned = scan_caches(directories, targets, versions, all_files=all_files, strict=strict)
        if mount_path:
            scanned = rewritten(scanned, mount_path, Path(work))
        built = images.pack(
            scanned.caches,
            ref.repository.rpartition("/")[2],
            Path(work),
            versions=versions,
            mount_path=for_path,
            report=lambda done, of: report("Packing", done, of),
        )
        if target:
            path = target.path
            need = sum(blob.descriptor.size for blob in built.blobs)
            disks.check_free(path.absolute().parent, need)
            with disks.filling(path.absolute().parent, lambda: max(need, *map(disks.size_of, directories))):
                _WRITERS[target.registry](
                    built, path, _name_there(ref, target), lambda done, of: report("Writing", done, of)
                )
        if provenance:
            program, finished = installed_version(), datetime.now(UTC)
            made = CacheBuild(targets, versions, builder or LOCAL_BUILDER, program, started, finished)
            provenance.write_bytes(statement(ref, built, made))
        if push:
            registry = access.registry(ref)
            registry_push.image(registry, ref, built, lambda done, of: report("Pushing", done, of))
    for warning in (*_warnings(scanned), *_left_out_lines(scanned)):
        sys.stderr.write(f"warning: {escape(warning)}\n")
    result = _result(ref, built) | {"leftOut": _left_out(scanned)}
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


def _described(scanned: ScannedCaches) -> dict[str, Any]:
    """Return what an image of the caches would have."""
    caches = scanned.caches
    return {
        "format": joined(cache.format.value for cache in caches),
        "size": sum(cache.size_bytes for cache in caches),
        "targets": _targets(caches),
        "entries": [
            {"form": each.form, "hash": each.hash, "arch": each.arch}
            for cache in caches
            for each in entries_in(cache.manifest)
        ],
        "labels": image_labels(caches),
        "leftOut": _left_out(scanned),
        "damaged": _damaged(scanned),
        "warnings": _warnings(scanned),
    }


def _targets(caches: Sequence[CacheContents]) -> list[dict[str, Any]]:
    """Return the GPUs that can use every cache, as the label of a cache states them."""
    hardware = {(target.backend, target.arch) for target in common_targets([cache.targets for cache in caches])}
    stated = json.loads(caches[0].labels[caches[0].format.summary_label])["targets"]
    return [each for each in stated if (each["backend"], str(each["arch"]).removeprefix("sm_")) in hardware]


def _warnings(scanned: ScannedCaches) -> list[str]:
    return [warning for cache in scanned.caches for warning in images.warnings(cache)]


def _damaged(scanned: ScannedCaches) -> dict[str, str]:
    return {
        f"{prefix}{path}": problem for cache, prefix in _prefixed(scanned) for path, problem in cache.damaged.items()
    }


def _prefixed(scanned: ScannedCaches) -> list[tuple[CacheContents, str]]:
    """Return each cache with the part of a path that tells it from the others."""
    several = len(scanned.caches) > 1
    return [(cache, f"{cache.format.value}/" if several else "") for cache in scanned.caches]


def _left_out(scanned: ScannedCaches) -> list[dict[str, Any]]:
    unmovable = {cache.format: BY_NAME[cache.format.value].unmovable for cache in scanned.caches}
    found = [("", "", scanned.beside)]
    found += [(prefix, unmovable[cache.format], cache.left_out) for cache, prefix in _prefixed(scanned)]
    return [
        {
            "kind": kind.value,
            "why": why if kind is FileKind.UNMOVABLE else "",
            "count": files.count,
            "bytes": files.bytes,
            "examples": [f"{prefix}{path}" for path in files.examples],
        }
        for prefix, why, left_out in found
        for kind, files in left_out.kinds.items()
    ]


def _left_out_lines(scanned: ScannedCaches) -> list[str]:
    """Return a line for each kind of files that stay out, and one for each damaged kernel."""
    kinds = [
        f"left out {found['count']} of {found['kind']}{found['why'] and ', because '}{found['why']} "
        f"({found['bytes']} bytes): {', '.join(found['examples'])}"
        + (", …" if found["count"] > len(found["examples"]) else "")
        for found in _left_out(scanned)
    ]
    damaged = [f"kernel {path}: {problem}" for path, problem in list(_damaged(scanned).items())[:_MAX_SHOWN]]
    return [*kinds, *damaged]


def _print_contents(described: dict[str, Any], scanned: ScannedCaches) -> None:
    line(f"format   {described['format']}, {described['size']} bytes")
    for target in described["targets"]:
        line(f"target   {' '.join(f'{key}={value}' for key, value in target.items())}")
    for entry in described["entries"][:_MAX_SHOWN]:
        line(f"entry    {entry['form']} {entry['hash']} {entry['arch']}".rstrip())
    if (more := len(described["entries"]) - _MAX_SHOWN) > 0:
        line(f"entry    and {count_of(more, 'more entry', 'more entries')}: -o json lists all")
    for text in (*described["warnings"], *_left_out_lines(scanned)):
        line(text)


def _destination(image: str, to: str, *, push: bool) -> tuple[Reference, LocalReference | None]:
    """Return the name of the image, and the place of `--to`.

    Raises:
        UsageError: an option is missing, the form is unknown, or the path cannot be written.
    """
    if not image:
        raise UsageError("the image has no name", "add --image registry.example/team/cache:1")
    target = local_reference.parse_local(to)
    if to and (target is None or target.digest):
        raise UsageError(f"--to {to[:80]!r} is not a destination", "write oci:PATH or docker-archive:FILE")
    if not (target or push):
        raise UsageError("the image has no destination", "add --push, --to oci:PATH or --to docker-archive:FILE")
    if target:
        disks.check_new(target.path, "--to")
    return Reference.parse(image), target


def _name_there(ref: Reference, target: LocalReference) -> Reference:
    """Return the name of the image in a layout or archive: that of `--image`, unless `--to` names another one."""
    if not target.tag:
        return ref
    return ref.tagged(target.tag) if target.registry == LAYOUT else Reference.parse(target.tag)


def _summary(to: str, *, push: bool) -> str:
    return " and ".join([*([f"written to {to}"] if to else []), *(["pushed"] if push else [])])
