"""Scan a cache directory in one walk: which runtime wrote it, its manifest and its labels.

Follows the order of MCV's DetectCaches: vLLM first, Triton only if it is not vLLM's. Between them comes
TorchInductor's, which MCV does not know (docs/reference/formats.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from gkm.api.errors import GKMError, Reason
from gkm.api.grammar import count_of
from gkm.api.targets import GpuTarget
from gkm.images.assembly.artifact_file import HEAD_BYTES, is_artifact_file
from gkm.images.assembly.damage import damaged_kernels
from gkm.images.assembly.factors_file import redact
from gkm.images.assembly.go_json import marshal, marshal_indent
from gkm.images.assembly.inductor import InductorScan, inductor_targets
from gkm.images.assembly.recognition import runtime_of
from gkm.images.assembly.selection import EVERYTHING, LeftOut, Selection, of_runtime
from gkm.images.assembly.table_entries import TableScan, check_versions
from gkm.images.assembly.target_claims import found_or_stated, kernel_targets
from gkm.images.assembly.tree import TreeEntry, walk
from gkm.images.assembly.triton import Kernel, manifest_entry, parse_kernel
from gkm.images.assembly.versions import DependencyVersions
from gkm.images.assembly.vllm import VllmScan, vllm_labels, vllm_targets
from gkm.images.cache import MAX_TARGETS, Format, stated_targets
from gkm.images.pulling.extract import MAX_MANIFEST_BYTES
from gkm.runtimes import BY_NAME
from gkm.runtimes.foreign import SECRET_BYTES, holds_secret
from gkm.runtimes.layout import FileKind
from gkm.runtimes.triton import GROUP
from gkm.runtimes.vllm import ROOT

SCANNED: Final = frozenset({Format.TRITON, Format.VLLM, Format.INDUCTOR})
"""The formats that have separate scanners, and a manifest with their name as its key."""
_KNOWN: Final = frozenset({FileKind.CONTENT, FileKind.UNCAPTURED})
"""A path of these kinds tells enough."""


@dataclass(frozen=True, slots=True)
class CacheContents:
    """The result of scanning a cache directory: `manifest` is manifest.json, `size_bytes` the size of all files."""

    directory: Path
    format: Format
    manifest: bytes
    labels: dict[str, str]
    size_bytes: int
    secrets: tuple[str, ...] = ()
    """Environment variables with secrets from the compilation; the image has null in place of their values."""
    triton: str = ""
    """The version of Triton in all kernels of an inductor cache."""
    selection: Selection = EVERYTHING
    """Which files the image gets, without files that were left out because of their content."""
    left_out: LeftOut = field(default_factory=LeftOut)
    damaged: dict[str, str] = field(default_factory=dict)
    """Directories of kernels that the image leaves out because they are incomplete or damaged, with the reason."""
    rewritten: Path | None = None
    """A directory with replacements for files at the same paths."""

    @property
    def targets(self) -> tuple[GpuTarget, ...]:
        """Return the kinds of GPU that the cache was compiled for, as its labels state them."""
        return stated_targets(self.labels, self.format, str(self.directory))


def scan_cache(
    directory: Path,
    stated: Sequence[GpuTarget],
    versions: DependencyVersions,
    *,
    all_files: bool = False,
    strict: bool = False,
    inside: Sequence[str] = (),
) -> CacheContents:
    """Scan a directory that may have other files beside a cache, and return the contents for an image.

    The image gets the files that the runtime writes, or with `all_files` all files except keys and tokens. It gets no
    kernel that is incomplete or damaged. `inside` are directories at the top that hold caches of other runtimes.

    Raises:
        GKMError: as `scan_directory`; METADATA_INVALID when a kernel is damaged and `strict` refuses it.
        OSError: it cannot be read.
    """
    selection = of_runtime(runtime_of(directory), all_files=all_files, inside=inside)
    damaged = damaged_kernels(directory, selection)
    if strict and damaged:
        path, problem = next(iter(damaged.items()))
        raise GKMError(
            Reason.METADATA_INVALID,
            f"{count_of(len(damaged), 'kernel')} of the cache cannot be used: {path}: {problem}",
            "compile again, or leave --strict out: the image then has all kernels but these",
        )
    if selection.runtime:
        check_versions(selection.runtime, versions.others)
    usable = selection.without(dict.fromkeys(damaged, FileKind.INCOMPLETE))
    return replace(scan_directory(directory, stated, versions, usable), damaged=damaged)


def scan_directory(
    directory: Path, stated: Sequence[GpuTarget], versions: DependencyVersions, selected: Selection = EVERYTHING
) -> CacheContents:
    """Scan a cache directory; `stated` are GPUs from the user, for a cache that does not name its GPU.

    Raises:
        GKMError: METADATA_MISSING if the directory holds no cache or its GPU is unknown, METADATA_INVALID when its
            parts or
            `stated` name different GPUs, TOO_LARGE; as `walk` raises.
        OSError: it cannot be read.
    """
    scan = _DirectoryScan(TableScan(selected))
    for entry in walk(directory, selected, scan.left_out.add):
        scan.add(entry)
    kind = scan.format(directory)
    targets = {kernel.gpu_target for kernel in scan.kernels} | scan.table.targets
    if len(targets) > MAX_TARGETS:
        raise GKMError(
            Reason.TOO_LARGE,
            f"the cache has kernels for {len(targets)} kinds of GPU, at most {MAX_TARGETS} can be stated",
            "build several images",
        )
    labels: dict[str, str] = {}
    entries: Sequence[Mapping[str, Any]]
    match kind:
        case Format.VLLM:
            count, entries, labels = scan.vllm.count, scan.vllm.entries, vllm_labels(scan.vllm)
            summary = vllm_targets(scan.vllm, targets, stated, versions)
        case Format.INDUCTOR:
            entries = scan.inductor.entries
            count, summary = len(entries), inductor_targets(scan.inductor, targets, stated, versions)
        case Format.TRITON:
            entries = [manifest_entry(kernel) for kernel in scan.kernels]
            count, summary = len(entries), kernel_targets(targets, stated, versions)
        case _:
            entries = scan.table.listed(BY_NAME[kind.value])
            count, summary = len(entries), kernel_targets(set(found_or_stated(targets, stated)), (), versions)
    labels |= {
        kind.count_label: str(count),
        kind.size_label: str(scan.size),
        kind.summary_label: marshal({"targets": summary}),
    }
    triton = scan.inductor.triton if kind is Format.INDUCTOR else set()
    return CacheContents(
        directory,
        kind,
        _manifest(directory, kind.value if kind in SCANNED else "entries", entries),
        labels,
        scan.size,
        tuple(sorted(scan.secrets)),
        triton=next(iter(triton)) if len(triton) == 1 else "",
        selection=selected.without(scan.excluded),
        left_out=scan.left_out,
    )


def _manifest(directory: Path, key: str, entries: Sequence[Mapping[str, Any]]) -> bytes:
    manifest = marshal_indent({key: entries}).encode()
    if len(manifest) > MAX_MANIFEST_BYTES:
        raise GKMError(
            Reason.TOO_LARGE,
            f"the cache in {directory} would need a manifest of {len(manifest)} bytes, at most {MAX_MANIFEST_BYTES}",
            "build several images",
        )
    return manifest


@dataclass(slots=True)
class _DirectoryScan:
    """The files that one walk finds of each runtime."""

    table: TableScan
    vllm: VllmScan = field(default_factory=VllmScan)
    inductor: InductorScan = field(default_factory=InductorScan)
    kernels: list[Kernel] = field(default_factory=list)
    secrets: set[str] = field(default_factory=set)
    size: int = 0
    has_triton_marker: bool = False
    excluded: dict[str, FileKind] = field(default_factory=dict)
    left_out: LeftOut = field(default_factory=LeftOut)

    def add(self, entry: TreeEntry) -> None:
        if kind := _kind_by_content(entry):
            self.excluded[entry.path] = kind
            self.left_out.add(entry.path, kind, entry.size)
            return
        kernel = parse_kernel(entry)
        if kernel is not None:
            self.kernels.append(kernel)
        self.vllm.add(entry, kernel)
        self.inductor.add(entry, kernel)
        self.table.add(entry)
        self.has_triton_marker |= _is_triton_marker(entry)
        packed = redact(entry)
        self.secrets.update(packed.names if packed else ())
        self.size += len(packed.data) if packed else entry.size

    def format(self, directory: Path) -> Format:
        """Return the runtime; raises METADATA_MISSING if there is no cache."""
        runtime = self.table.selected.runtime
        if runtime and Format(runtime.name) not in SCANNED:
            return Format(runtime.name)
        if self.vllm.is_vllm and not self.vllm.entries:
            # MCV builds an image with the summary `null`, which no node could use.
            raise GKMError(
                Reason.METADATA_MISSING,
                f"{directory / ROOT} holds no compiled model of vLLM that is complete",
                "wait until vLLM has written its cache",
            )
        if self.vllm.is_vllm:
            return Format.VLLM
        if self.inductor.is_inductor:
            return Format.INDUCTOR
        if self.has_triton_marker and self.kernels:
            return Format.TRITON
        raise GKMError(
            Reason.METADATA_MISSING,
            f"{directory} holds no cache of Triton, vLLM or TorchInductor",
            "name the directory that TRITON_CACHE_DIR, VLLM_CACHE_ROOT or TORCHINDUCTOR_CACHE_DIR pointed to while the "
            "kernels were compiled",
        )


def _kind_by_content(entry: TreeEntry) -> FileKind | None:
    """Return why a selected file stays out, from its bytes; None if it belongs to the image."""
    if entry.directory or entry.kind in _KNOWN:
        return None
    if entry.kind is FileKind.ARTIFACTS:
        return None if is_artifact_file(entry.head(HEAD_BYTES)) else FileKind.FOREIGN
    return FileKind.SECRET if holds_secret(entry.head(SECRET_BYTES)) else None


def _is_triton_marker(entry: TreeEntry) -> bool:
    group = entry.name.startswith(GROUP) and entry.name.endswith(".json")
    return entry.may_be_mark and (group or entry.name.endswith(".ttir") or entry.name == "__triton_launcher.so")
