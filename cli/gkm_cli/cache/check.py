"""`gkm cache check`: which GPUs can use an image, which cannot, and why."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import msgspec
import typer
import yaml
from gkm.api import documents
from gkm.api.errors import GKMError, Reason
from gkm.api.nodes import GPUGroup
from gkm.gpus import inventory, preflight
from gkm.gpus.values import Gpu
from msgspec import Struct, field

from gkm_cli.answers import No, Output, OutputOption, line, show, table
from gkm_cli.registries import Access, CAFileOption, ConfigOption, PlainHTTPOption, RefArgument

MAX_BYTES = 4 << 20
GPUsOption = Annotated[
    Path | None,
    typer.Option("--gpus", metavar="FILE", help="Not the GPUs here but those of `gkm node detect` or a node object."),
]


class _Status(Struct):
    gpus: list[GPUGroup]


class _Object(Struct):
    """What holds groups of GPUs: the output of `gkm node detect`, or a GKMCacheNode."""

    gpus: list[GPUGroup] | None = None
    status: _Status | None = field(default=None)


def check(
    reference: RefArgument,
    *,
    gpus: GPUsOption = None,
    plain_http: PlainHTTPOption = False,
    ca_file: CAFileOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say which GPUs of this machine can use an image, which cannot, and why; exit 3 when none can."""
    _, image = Access.of(config, plain_http=plain_http, ca_file=ca_file).described(reference)
    verdict = preflight.check(image.targets, _listed(gpus) if gpus else _here())
    answer = {
        "compatibleGPUs": msgspec.to_builtins(verdict.compatible),
        "incompatibleGPUs": msgspec.to_builtins(verdict.incompatible),
        "message": verdict.message,
    }
    rows = [(_ids(group.ids), "yes", "") for group in verdict.compatible]
    rows += [(_ids(group.ids), group.reason, group.message) for group in verdict.incompatible]
    people = (lambda: table(("gpus", "fits", "why"), rows)) if rows else (lambda: line(f"no: {verdict.message}"))
    show(answer, output, people)
    if not verdict.fits:
        raise No


def _here() -> Iterable[Gpu]:
    """Return the GPUs of this machine.

    Raises:
        GKMError: GPU_LOST; a driver that does not answer is not a machine without GPUs.
    """
    reading = inventory.read()
    if reading.unreadable:
        raise GKMError(Reason.GPU_LOST, f"the GPUs of this machine cannot be read: {'; '.join(reading.errors)}")
    return reading.gpus


def _listed(path: Path) -> list[Gpu]:
    """Return the GPUs in a file.

    Raises:
        GKMError: METADATA_INVALID.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise GKMError(Reason.METADATA_INVALID, f"{path} has more than {MAX_BYTES} bytes")
    try:
        found: _Object | list[GPUGroup] = documents.decode(raw, _Object | list[GPUGroup])  # type: ignore[arg-type]
    except (msgspec.MsgspecError, yaml.YAMLError, RecursionError, ValueError) as error:
        raise GKMError(
            Reason.METADATA_INVALID,
            f"{path} does not list GPUs: {error}",
            "give it the output of `gkm node detect -o json`, or a GKMCacheNode",
        ) from error
    if isinstance(found, _Object):
        return list(_each(found.gpus or (found.status.gpus if found.status else [])))
    return list(_each(found))


def _each(groups: Iterable[GPUGroup]) -> Iterable[Gpu]:
    for group in groups:
        for index in group.ids:
            yield Gpu(
                index,
                group.backend,
                model=group.gpu_type,
                driver_version=group.driver_version,
                arch=group.arch,
                warp_size=group.warp_size,
                memory_mib=group.memory_mib,
            )


def _ids(ids: list[int]) -> str:
    return ",".join(map(str, ids))
