"""`gkm cache build`: an image from the directory that a runtime has filled."""

import json
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from gkm.images.archives import docker_archive_writing, oci_layout
from gkm.images.build.image import build as build_image
from gkm.images.build.versions import Versions
from gkm.images.packed import PackedImage
from gkm.images.reference import Reference
from gkm.images.registries import push as pushing

from gkm_cli.answers import Output, OutputOption, WrongUsage, line, show
from gkm_cli.bars import bars
from gkm_cli.cache.stated_gpus import GPUOption, GPUsOption, stated
from gkm_cli.registries import Access, CAFileOption, ConfigOption, PlainHTTPOption

DirectoryArgument = Annotated[Path, typer.Argument(metavar="DIR", exists=True, file_okay=False)]
ImageOption = Annotated[str, typer.Option("--image", metavar="REF", help="What the image is called.")]
ToOption = Annotated[
    str, typer.Option("--to", metavar="oci:PATH|docker-archive:FILE", help="Write it there; it must not exist.")
]
PushOption = Annotated[bool, typer.Option("--push", help="Push it to its registry.")]
VersionOption = Annotated[
    list[str] | None,
    typer.Option("--dependency-version", metavar="NAME=VERSION", help="What it was made with; repeatable."),
]
_WRITERS = {"oci": oci_layout.write, "docker-archive": docker_archive_writing.write}


def build(
    directory: DirectoryArgument,
    *,
    image: ImageOption,
    to: ToOption = "",
    push: PushOption = False,
    gpu: GPUOption = "",
    gpus: GPUsOption = None,
    dependency_version: VersionOption = None,
    plain_http: PlainHTTPOption = False,
    ca_file: CAFileOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make an image of the Triton or vLLM cache in DIR, as MCV makes them."""
    ref = Reference.parse(image)
    form, path = _destination(to)
    targets = stated(gpu, gpus)
    warnings: list[str] = []
    with tempfile.TemporaryDirectory(prefix="gkm-build-") as work, bars("Packing", "Writing", "Pushing") as tell:
        built = build_image(
            directory,
            ref.repository.rpartition("/")[2],
            Path(work),
            stated=targets,
            versions=Versions.parse(dependency_version or []),
            report=lambda done, of: tell("Packing", done, of),
            warn=warnings.append,
        )
        if form:
            _WRITERS[form](built, path, ref, lambda done, of: tell("Writing", done, of))
        if push:
            registry = Access.of(config, plain_http=plain_http, ca_file=ca_file).registry(ref)
            pushing.image(registry, ref, built, lambda done, of: tell("Pushing", done, of))
    for warning in warnings:
        sys.stderr.write(f"warning: {warning}\n")
    show(_answer(ref, built), output, lambda: line(f"{ref.name}@{built.digest} {_done(to, push=push)}"))


def _answer(ref: Reference, built: PackedImage) -> dict[str, object]:
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
        WrongUsage: it is no form that we write.
    """
    form, _, path = to.partition(":")
    if to and (form not in _WRITERS or not path):
        raise WrongUsage(f"--to {to[:80]!r} is no place for an image", "write oci:PATH or docker-archive:FILE")
    return form, Path(path)


def _done(to: str, *, push: bool) -> str:
    done = [*([f"written to {to}"] if to else []), *(["pushed"] if push else [])]
    return " and ".join(done) or "built (nothing was kept: add --push or --to)"
