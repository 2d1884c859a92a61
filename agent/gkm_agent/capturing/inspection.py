"""Inspect the files that a pod added to its volume: return their list, GPU targets and digest, or refuse the capture.

The files do not decide about the hardware. The agent measured it on the node, and files that name other hardware are
refused, because a node would offer kernels that no GPU here has run.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
from gkm.api.errors import GKMError, Reason
from gkm.api.targets import GpuTarget, format_arch
from gkm.gpus import preflight
from gkm.gpus.targets import normalize_target
from gkm.gpus.values import Gpu, Inventory
from gkm.hoststate.escaping import escape
from gkm.images.assembly import factors_file
from gkm.images.assembly.compiled_targets import CompiledTargets
from gkm.images.assembly.several import CapturedPart, captured_in, scan_captured
from gkm.images.assembly.tree import TreeEntry, walk
from gkm.images.assembly.triton import version_in
from gkm.images.cache import Format
from gkm.images.captured.content import Hardware, PackedFile, content_digest
from gkm.images.local_image import StreamHasher
from gkm.runtimes.placement import directory_of, joined
from gkm.runtimes.triton import ELF, ELF_SUFFIXES, GROUP

from gkm_agent.capturing.progress import MAX_FILES_BYTES

MAX_FILES: Final = 50_000
"""Limit of files in a capture. A real cache of 1 GB has 15,000; the attestation lists them all."""
MAX_GROUP_BYTES: Final = 64 << 10
MAX_METADATA_BYTES: Final = 4 << 20
_LISTED_BYTES: Final = 128
"""The most bytes of a listed file besides its path."""


class _Group(msgspec.Struct):
    child_paths: dict[str, str] | list[str] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Inspection:
    """The result of an accepted inspection: the captured files in the form of an image, sorted by path."""

    hardware: Hardware
    files: list[PackedFile]

    @property
    def size_bytes(self) -> int:
        """Return the size of all captured files in bytes."""
        return sum(file.size for file in self.files)

    @property
    def content_digest(self) -> str:
        """Return one digest of the hardware and of all captured files."""
        return content_digest(self.hardware.key, self.files)


def inspect(content: Path, inventory: Inventory, max_bytes: int, kept: Collection[str] = ()) -> Inspection:
    """Inspect a capture and return its files; the total size is checked against `max_bytes` before any file is read.

    `kept` are the paths of the files in the image that the capture extends.

    Raises:
        GKMError: UNSAFE_CONTENT for links, devices, names and paths that no cache has; TOO_LARGE; METADATA_MISSING when
            the files are no cache; METADATA_INVALID when they contradict each other; the reasons of the preflight check
            when they name hardware that this node does not have. NO_GPU and GPU_LOST when the node's hardware is
            unknown now: try again.
        OSError: a file cannot be read.
    """
    measured = _measured(inventory)
    read = _Reader(_Limits(max_bytes, len(kept)))
    counted = _Limits(max_bytes, len(kept))
    files = {part.directory: read.directory(part) for part in captured_in(content, kept, counted.count)}
    read.check()
    caches = scan_captured(content, sorted(measured) if any(files.values()) else (), kept)
    targets = [*(target for cache in caches for target in cache.targets), *read.compiled.named_in]
    kinds = {target for target in measured if any(_is_of(target, stated) for stated in targets)}
    for target in targets:
        fit = preflight.check([target], inventory.gpus)
        if not fit.fits:
            raise GKMError(
                fit.reason or Reason.NO_GPU, f"the captured files name hardware that this node lacks: {fit.message}"
            )
    if len(kinds) != 1:
        raise GKMError(
            Reason.METADATA_INVALID,
            f"the captured files are for {len(kinds)} kinds of GPU of this node, a capture must be for one",
        )
    (kind,) = kinds
    names = [cache.format.value for cache in caches]
    hardware = Hardware(
        backend=kind.backend,
        arch=format_arch(kind.backend, kind.arch),
        warp_size=kind.warp_size,
        driver=measured[kind].driver_version[:64],
        runtime=joined(names),
        version=read.version if names == [Format.TRITON.value] else "",
    )
    packed = [
        msgspec.structs.replace(file, path="/".join(filter(None, (directory_of(name, names), file.path))))
        for cache, name in zip(caches, names, strict=True)
        for file in files[cache.directory]
    ]
    return Inspection(hardware, sorted(packed, key=lambda file: file.path))


def _measured(inventory: Inventory) -> dict[GpuTarget, Gpu]:
    """Return the kinds of GPU of this node, each with one such GPU; raises as `inspect`."""
    healthy = {GpuTarget(gpu.backend, gpu.arch, gpu.warp_size): gpu for gpu in inventory.gpus if not gpu.fatal_fault}
    if healthy:
        return healthy
    if inventory.gpus or inventory.errors:
        raise GKMError(Reason.GPU_LOST, "no GPU of this node can be read, so the hardware of the capture is unknown")
    raise GKMError(Reason.NO_GPU, "this node has no GPU, so the hardware of the capture is unknown")


def _is_of(measured: GpuTarget, stated: GpuTarget) -> bool:
    normal = normalize_target(stated)
    return (measured.backend, measured.arch) == (normal.backend, normal.arch)


@dataclass(slots=True)
class _Limits:
    """The limits of all parts of a capture together, for one walk through them."""

    max_bytes: int
    kept: int
    """The number of files in the generation that the capture extends: they count, as the image and its statement have
    them."""
    _files: int = 0
    _bytes: int = 0
    _listed_bytes: int = 0

    def count(self, entry: TreeEntry) -> None:
        """Count a file; a directory counts in the limits of `walk`. Raises GKMError: TOO_LARGE."""
        if entry.directory:
            return
        self._files += 1
        self._bytes += entry.size
        self._listed_bytes += len(msgspec.json.encode(entry.path)) + _LISTED_BYTES
        if self._files > MAX_FILES:
            raise self._exceeded(f"{MAX_FILES} files")
        if self._bytes > self.max_bytes:
            raise self._exceeded(f"the {self.max_bytes} bytes of capture.maxBytes")
        if self._listed_bytes > MAX_FILES_BYTES:
            raise self._exceeded(f"{MAX_FILES_BYTES} bytes of names")

    def _exceeded(self, limit: str) -> GKMError:
        if not self.kept:
            return GKMError(Reason.TOO_LARGE, f"the capture has more than {limit}")
        return GKMError(
            Reason.TOO_LARGE,
            f"the capture has more than {limit}, with the {self.kept} files of the generation that it extends; "
            "pods whose volume names another cache begin a new family",
        )


@dataclass(slots=True)
class _Reader:
    """Reads every file once."""

    limits: _Limits
    compiled: CompiledTargets = field(default_factory=CompiledTargets)
    _versions: set[str] = field(default_factory=set)

    @property
    def version(self) -> str:
        """Return the version of Triton that all kernels state; "" if they state no version, or several."""
        return next(iter(self._versions)) if len(self._versions) == 1 else ""

    def directory(self, part: CapturedPart) -> list[PackedFile]:
        """Read all files that belong to a cache; return them, relative to its directory."""
        files = []
        for entry in walk(part.directory, part.selection):
            if not entry.directory:
                self.limits.count(entry)
                files.append(self._file(entry))
        return files

    def check(self) -> None:
        """Refuse files for two kinds of GPU."""
        if self.compiled.is_ambiguous:
            named = " and ".join(escape(target.arch_name) for target in sorted(self.compiled.named_in))
            raise GKMError(Reason.METADATA_INVALID, f"the compiled files are for more than one kind of GPU: {named}")

    def _file(self, entry: TreeEntry) -> PackedFile:
        self._check(entry)
        redacted = factors_file.redact(entry)
        hasher = StreamHasher()
        pieces = hasher.through([redacted.data] if redacted else entry.pieces())
        if entry.name.endswith(".ptx"):
            self.compiled.scan(entry.path, pieces)
        for _ in pieces:
            pass
        return PackedFile(entry.path, hasher.digest.removeprefix("sha256:"), hasher.size)

    def _check(self, entry: TreeEntry) -> None:
        """Refuse a file that is not what its name says, or that names files elsewhere."""
        if entry.name.endswith(ELF_SUFFIXES) and next(_head(entry), b"")[: len(ELF)] != ELF:
            raise _no_such_file(entry, "is no compiled code")
        if not entry.name.endswith(".json"):
            return
        if entry.name.startswith(GROUP):
            self._check_group(entry)
        elif entry.size <= MAX_METADATA_BYTES:
            self._read_version(entry)

    def _check_group(self, entry: TreeEntry) -> None:
        """Refuse a group file with a path outside of its directory: Triton opens these paths."""
        if entry.size > MAX_GROUP_BYTES:
            raise _no_such_file(entry, f"has more than {MAX_GROUP_BYTES} bytes")
        try:
            children = msgspec.json.decode(entry.read(), type=_Group).child_paths
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise _no_such_file(entry, "is no group file of Triton") from error
        directory = entry.path.rpartition("/")[0]
        for name, path in children.items() if isinstance(children, dict) else ():
            parts = path.split("/")
            inside = path.startswith("/") and path.endswith(f"/{directory}/{name}") and "/" not in name
            if not inside or not {"..", "."}.isdisjoint(parts) or not path.isprintable():
                raise _no_such_file(entry, f"names a file outside of its directory: {escape(path)[:200]!r}")

    def _read_version(self, entry: TreeEntry) -> None:
        version = version_in(entry.read())
        if version and len(self._versions) < 2:  # noqa: PLR2004 -- enough to know that they differ
            self._versions.add(version)


def _head(entry: TreeEntry) -> Iterator[bytes]:
    return iter([next(entry.pieces(), b"")])


def _no_such_file(entry: TreeEntry, what: str) -> GKMError:
    return GKMError(Reason.UNSAFE_CONTENT, f"{escape(entry.path)[:300]} {what}")
