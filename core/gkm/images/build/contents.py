"""What a cache directory holds, found in one walk: which runtime made it, its manifest and its labels.

The order of MCV's DetectCaches (prior-art/gkm-02-mcv-image-format.md, "Detection rules"): vLLM first, Triton only where
it is none. Parts of paths that start with a dot or contain "vendor" are not looked at for marks, but are packed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gkm.api.errors import GKMError, Reason
from gkm.images.build.factors_file import redacted
from gkm.images.build.go_json import marshal, marshal_indent
from gkm.images.build.tree import Entry, walk
from gkm.images.build.triton import Kernel, kernel_in, manifest_entry
from gkm.images.build.versions import Versions
from gkm.images.build.vllm import ROOT, Seen
from gkm.images.build.vllm_labels import labels_of
from gkm.images.build.vllm_targets import check_stated
from gkm.images.cache import MAX_TARGETS, Format, Target
from gkm.images.pulling.extract import MAX_MANIFEST_BYTES


@dataclass(frozen=True, slots=True)
class Contents:
    """A cache that was found: `manifest` is manifest.json, `size_bytes` what all files have together."""

    format: Format
    manifest: bytes
    labels: dict[str, str]
    size_bytes: int
    secrets: tuple[str, ...] = ()
    """Names of variables of whoever compiled: the image has null in place of what they hold."""


def look(directory: Path, stated: Sequence[Target], versions: Versions) -> Contents:
    """Return what is in a directory; `stated` are GPUs that a person names, for a cache that does not say it.

    Raises:
        GKMError: METADATA_MISSING when it is no cache or nothing tells the GPU, METADATA_INVALID when its parts or
            `stated` contradict each other about it, TOO_LARGE, and what `walk` raises.
        OSError: it cannot be read.
    """
    seen, marked, size = Seen(), False, 0
    kernels: list[Kernel] = []
    secrets: set[str] = set()
    for entry in walk(directory):
        kernel = kernel_in(entry)
        if kernel is not None:
            kernels.append(kernel)
        seen.see(entry, kernel)
        marked |= _marks_triton(entry)
        packed = redacted(entry)
        secrets.update(packed.names if packed else ())
        size += len(packed.data) if packed else entry.size
    if seen.is_vllm:
        if not seen.entries:
            # MCV makes an image of it all the same, with the summary `null`: no node could use it.
            raise GKMError(
                Reason.METADATA_MISSING,
                f"{directory / ROOT} holds no compiled model of vLLM that is complete",
                "wait until vLLM has written its cache",
            )
        found = _vllm(seen, kernels, stated, size, versions)
    elif marked and kernels:
        found = _triton(kernels, stated, size, versions)
    else:
        raise GKMError(
            Reason.METADATA_MISSING,
            f"{directory} holds neither a Triton cache nor one of vLLM",
            "name the directory that TRITON_CACHE_DIR or VLLM_CACHE_ROOT pointed to while the kernels were compiled",
        )
    if len(found.manifest) > MAX_MANIFEST_BYTES:
        raise _too_large(directory, f"a manifest of {len(found.manifest)} bytes, at most {MAX_MANIFEST_BYTES}")
    return replace(found, secrets=tuple(sorted(secrets)))


def _triton(kernels: list[Kernel], stated: Sequence[Target], size: int, versions: Versions) -> Contents:
    kind = Format.TRITON
    targets = sorted({kernel.built_for for kernel in kernels})
    summary = {"targets": [versions.target(target.backend, target.arch, target.warp_size) for target in targets]}
    _check_targets(len(targets))
    check_stated(stated, set(targets))
    labels = {
        kind.count_label: str(len(kernels)),
        kind.size_label: str(size),
        kind.summary_label: marshal(summary),
    }
    manifest = {kind.value: [manifest_entry(kernel) for kernel in kernels]}
    return Contents(kind, marshal_indent(manifest).encode(), labels, size)


def _vllm(seen: Seen, kernels: list[Kernel], stated: Sequence[Target], size: int, versions: Versions) -> Contents:
    targets = {kernel.built_for for kernel in kernels}
    _check_targets(len(targets))
    manifest = marshal_indent({Format.VLLM.value: seen.entries}).encode()
    return Contents(Format.VLLM, manifest, labels_of(seen, targets, stated, size, versions), size)


def _marks_triton(entry: Entry) -> bool:
    parts = entry.path.split("/")
    directories = parts if entry.directory else parts[:-1]
    if any(part.startswith(".") or "vendor" in part for part in directories):
        return False
    name = parts[-1]
    group = name.startswith("__grp__") and name.endswith(".json")
    return group or name.endswith(".ttir") or name == "__triton_launcher.so"


def _check_targets(count: int) -> None:
    if count > MAX_TARGETS:
        raise GKMError(
            Reason.TOO_LARGE,
            f"the cache has kernels for {count} kinds of GPU, at most {MAX_TARGETS} can be stated",
            "build several images",
        )


def _too_large(directory: Path, what: str) -> GKMError:
    return GKMError(Reason.TOO_LARGE, f"the cache in {directory} would need {what}", "build several images")
