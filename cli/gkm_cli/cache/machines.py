"""The machines whose GPUs a command checks: those in a file, or this one; and the options `--gpu` and `--gpus`.

A file is the output of `gkm node detect`, or GKMCacheNodes as kubectl prints them, one or many. A file of any other
kind is an error, never a machine without GPUs: that would be a wrong answer. YAML must not use aliases, because a small
file with aliases expands to a large value; kubectl writes no aliases.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from gkm.api import documents, json_limits
from gkm.api.errors import GKMError, Reason
from gkm.api.nodes import GPUGroup
from gkm.api.targets import GpuTarget
from gkm.gpus.inventory import InventoryReader
from gkm.gpus.values import MAX_GPUS, Gpu, printable
from gkm.images.cache import is_valid_target
from msgspec import Struct

from gkm_cli.inputs.gpu_names import parse_gpu
from gkm_cli.output import UsageError

MAX_BYTES = 4 << 20
MAX_YAML_BYTES = 512 << 10
"""Limit of bytes of YAML: parsing takes up to 190 bytes of memory for each byte, JSON takes 20 (measured)."""
_NODES = ("GKMCacheNode", "ClusterGKMCacheNode")
_LISTS = ("List", *(f"{kind}List" for kind in _NODES))
_HINT = "give it the output of `gkm node detect -o json`, or of `kubectl get gkmcn -A -o json`"


class NodeGPUs(Struct, frozen=True):
    """The GPUs of one machine; `name` is the node's name, empty if the file has no name."""

    name: str
    gpus: tuple[Gpu, ...]


def machines(gpu: str, file: Path | None) -> list[NodeGPUs]:
    """Return the machine with the GPU that `gpu` names, or the machines in a file; without both, this machine.

    The driver of a GPU that is only named is unknown, and the result leaves it out.

    Raises:
        UsageError: the file does not list GPUs, the text names no GPUs, or both are given.
        OSError: the file cannot be read.
        GKMError: GPU_LOST: the driver does not answer. That is not a machine without GPUs.
    """
    if gpu and file:
        raise UsageError("--gpu and --gpus exclude each other", "give one of them")
    if gpu:
        target = parse_gpu(gpu)
        return [NodeGPUs("", (Gpu(0, target.backend, arch=target.arch, warp_size=target.warp_size),))]
    if file:
        return read(file)
    reading = InventoryReader().read()
    if reading.unreadable:
        raise GKMError(Reason.GPU_LOST, f"the GPUs of this machine cannot be read: {'; '.join(reading.errors)}")
    return [NodeGPUs("", reading.gpus)]


GPUOption = Annotated[
    str,
    typer.Option(
        "--gpu",
        metavar="GPU",
        help="A GPU: its model, such as h100, or BACKEND:ARCH:WARP, such as cuda:90:32 "
        "(docs/reference/formats.md#gpus).",
    ),
]
"""The GPUs that a command compares with; in a build, the GPUs that compiled the cache if its artifacts do not name
them.
"""
GPUsOption = Annotated[
    Path | None,
    typer.Option(
        "--gpus",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="GPUs from a file: `gkm node detect -o json`, a node object, or a list of node objects.",
    ),
]


def gpu_from_options(gpu: str, file: Path | None) -> list[GpuTarget]:
    """Return the kind of GPU that the options --gpu and --gpus name; an empty list without options.

    Raises:
        UsageError: the options name no GPU, or several.
        OSError: the file cannot be read.
    """
    if gpu and file:
        raise UsageError("--gpu and --gpus exclude each other", "give one of them")
    if file:
        return [_gpu_from_file(file)]
    return [parse_gpu(gpu)] if gpu else []


def _gpu_from_file(file: Path) -> GpuTarget:
    found = {
        GpuTarget(gpu.backend, gpu.arch, gpu.warp_size)
        for node in read(file)
        for gpu in node.gpus
        if not gpu.fatal_fault
    }
    if len(found) != 1:
        kinds = f"{len(found)} kinds of GPU" if found else "no usable GPU"
        raise UsageError(f"{file} lists {kinds}", "name the GPU that compiled the cache with --gpu BACKEND:ARCH:WARP")
    (target,) = found
    if not is_valid_target(target):
        raise UsageError(f"{file} lists an impossible GPU", "name the GPU with --gpu BACKEND:ARCH:WARP")
    return target


class _Invalid(Exception):
    """The document does not list GPUs; the message is the end of a sentence that says what it has instead."""


class _Groups(Struct, frozen=True):
    """The output of `gkm node detect`, and a part of a node's status."""

    gpus: list[GPUGroup] = []
    errors: list[str] = []


class _Spec(Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Node(Struct, frozen=True):
    status: _Groups
    spec: _Spec = _Spec()


def read(path: Path) -> list[NodeGPUs]:
    """Return the machines in a file with their GPUs, at least one machine.

    Raises:
        UsageError: the file does not list GPUs.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        return parse(file.read(MAX_BYTES + 1), str(path))


def parse(raw: bytes, name: str) -> list[NodeGPUs]:
    """Return the machines in the bytes of the file `name`; raise as `read` does."""
    try:
        return _distinct(_each(_decoded(raw)))
    except (_Invalid, RecursionError, ValueError) as error:
        raise UsageError(f"{name} does not list GPUs: {printable(str(error))}", _HINT) from error


def _distinct(nodes: Iterable[NodeGPUs]) -> list[NodeGPUs]:
    """Return each machine once: several namespaces may list the same node."""
    found: dict[str, NodeGPUs] = {}
    for node in nodes:
        if found.setdefault(node.name, node) != node:
            raise _Invalid(f"it lists {f'node {node.name}' if node.name else 'a machine'} twice, with different GPUs")
    return list(found.values())


def _decoded(raw: bytes) -> object:
    if len(raw) > MAX_BYTES:
        raise _Invalid(f"it has more than {MAX_BYTES} bytes")
    try:
        if raw.lstrip()[:1] in (b"[", b"{"):
            # `check` would refuse a list of nodes without white space, which has a value in 11 bytes.
            json_limits.check_objects(raw)
            json_limits.check_items(raw)
        return msgspec.json.decode(raw)
    except msgspec.MsgspecError:
        if len(raw) > MAX_YAML_BYTES:
            raise _Invalid(f"it is not JSON, and has more than {MAX_YAML_BYTES} bytes") from None
        return documents.decode(raw, object)


def _each(document: object) -> Iterable[NodeGPUs]:
    match document:
        case {"kind": kind, "items": list(items)} if kind in _LISTS:
            yield from map(_node, _some(items))
        case [{"ids": _}, *_]:
            yield NodeGPUs("", _gpus(msgspec.convert(document, list[GPUGroup])))
        case list(items):
            yield from map(_node, _some(items))
        case _:
            yield _node(document)


def _some(items: list[Any]) -> list[Any]:
    if not items:
        raise _Invalid("its list of machines is empty")
    return items


def _node(document: object) -> NodeGPUs:
    if not isinstance(document, Mapping):
        raise _Invalid(f"it holds a {type(document).__name__}, not an object")
    if str(document.get("kind", _NODES[0])) not in _NODES:
        raise _Invalid(f"it holds an object of kind {str(document['kind'])[:64]!r}")
    if "kind" not in document and "gpus" in document:
        return _detected(document)
    if not document.get("status"):
        raise _Invalid("it holds an object without a status, so no agent has reported its GPUs")
    node = msgspec.convert(document, _Node)
    return NodeGPUs(node.spec.node_name, _gpus(node.status.gpus))


def _detected(document: object) -> NodeGPUs:
    found = msgspec.convert(document, _Groups)
    if found.errors and not found.gpus:
        raise _Invalid(f"the GPUs could not be read: {found.errors[0]}")
    return NodeGPUs("", _gpus(found.gpus))


def _gpus(groups: Iterable[GPUGroup]) -> tuple[Gpu, ...]:
    gpus: list[Gpu] = []
    for group in groups:
        if not group.ids or not group.backend:
            raise _Invalid("it holds a group of GPUs without ids or without a backend")
        if len(gpus) + len(group.ids) > MAX_GPUS:
            raise _Invalid(f"it holds a machine with more than {MAX_GPUS} GPUs")
        gpus += (_gpu(group, index) for index in group.ids)
    return tuple(gpus)


def _gpu(group: GPUGroup, index: int) -> Gpu:
    return Gpu(
        index,
        group.backend,
        model=group.gpu_type,
        driver_version=group.driver_version,
        arch=group.arch,
        warp_size=group.warp_size,
        memory_mib=group.memory_mib,
    )
