"""Scan the files that TorchInductor writes in `TORCHINDUCTOR_CACHE_DIR`, one by one during the walk.

Sources: torch/_inductor/codecache.py, torch/_functorch/_aot_autograd/autograd_cache.py and
torch/_inductor/runtime/cache_dir_utils.py, 2.15 (docs/reference/formats.md has the layout). Graphs are pickles and
generated code is Python: GKM neither loads nor runs them. It reads their names, searches their bytes for marks of the
compilers, and parses the frame of files of `torch.compiler.save_cache_artifacts()`.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gkm.api.errors import GKMError, Reason
from gkm.api.targets import GpuTarget
from gkm.images.assembly.artifact_file import (
    MAX_ARTIFACTS,
    DamagedArtifactFile,
    NotAnArtifactFile,
    artifact_keys,
)
from gkm.images.assembly.compiled_targets import CompiledTargets
from gkm.images.assembly.target_claims import check_claims, compiled_target, found_or_stated
from gkm.images.assembly.tree import TreeEntry
from gkm.images.assembly.triton import Kernel, manifest_entry, version_in
from gkm.images.assembly.versions import DependencyVersions

GRAPHS: Final = "fxgraph"
AUTOGRAD: Final = "aotautograd"
TRITON: Final = "triton"
_KEY: Final = re.compile(r"[a-z0-9]{8,128}", re.ASCII)
_CODE: Final = re.compile(r"[a-z0-9]{2}/c[a-z0-9]{8,128}\.py", re.ASCII)
_CUDA: Final = re.compile(rb"system_info\[version\]: \{[^{}\n]{0,256}'cuda': '([0-9]{1,3}\.[0-9]{1,3})'", re.ASCII)
_CUDA_OVERLAP: Final = 512
_MAX_CUDA_VERSIONS: Final = 8


def graph_at(path: Sequence[str]) -> tuple[str, str] | None:
    """Return the kind and the key of a compiled graph of TorchInductor from its file's path; None for another file."""
    match path:
        case [top, shard, key, _] if top == GRAPHS and key[1:].startswith(shard) and _KEY.fullmatch(key):
            return GRAPHS, key
        case [top, key, _] if top == AUTOGRAD and _KEY.fullmatch(key):
            return AUTOGRAD, key
    return None


@dataclass(slots=True)
class InductorScan:
    """The state of a scan of a TorchInductor directory; `listed` are the entries of the manifest so far."""

    listed: list[dict[str, Any]] = field(default_factory=list)
    compiled: CompiledTargets = field(default_factory=CompiledTargets)
    cuda: set[str] = field(default_factory=set)
    """The versions of CUDA found in graphs."""
    triton: set[str] = field(default_factory=set)
    """The versions of Triton found in kernels, at most two."""
    _graphs: dict[tuple[str, str], None] = field(default_factory=dict)
    _has_artifact_file: bool = False
    _artifacts: int = 0
    """Those in files; all files of a directory together have MAX_ARTIFACTS at most."""

    @property
    def is_inductor(self) -> bool:
        """Return whether the directory holds compiled graphs, or a file of artifacts."""
        return bool(self._graphs) or self._has_artifact_file

    @property
    def entries(self) -> list[dict[str, Any]]:
        """Return the entries for manifest.json: graphs, then artifacts in files, then kernels."""
        graphs = [{"form": form, "hash": key} for form, key in self._graphs]
        return graphs + self.listed

    def add(self, entry: TreeEntry, kernel: Kernel | None) -> None:
        """Scan one file or directory of the cache.

        Raises:
            GKMError: METADATA_INVALID for a damaged file of artifacts; as reading it raises.
            OSError: it cannot be read.
        """
        if entry.directory:
            return
        parts = entry.path.split("/")
        if graph := graph_at(parts):
            self._graphs[graph] = None
            self._scan(entry)
            return
        match parts:
            case [top, _, _, *_] if top == TRITON:
                self._add_kernel(entry, kernel)
            case [_, _] if _CODE.fullmatch(entry.path):
                self._scan(entry)
            case [_]:
                self._add_artifact_file(entry)

    def _add_kernel(self, entry: TreeEntry, kernel: Kernel | None) -> None:
        if kernel is not None:
            self.listed.append({"form": TRITON, **manifest_entry(kernel)})
            if len(self.triton) <= 1 and (version := version_in(entry.read())):
                self.triton.add(version)
        elif entry.name.endswith(".ptx"):
            self.compiled.scan(entry.path, entry.pieces())

    def _add_artifact_file(self, entry: TreeEntry) -> None:
        try:
            keys = artifact_keys(entry.pieces(), MAX_ARTIFACTS - self._artifacts)
        except NotAnArtifactFile:
            return
        except DamagedArtifactFile as error:
            raise GKMError(
                Reason.METADATA_INVALID,
                f"{entry.path[-200:]} begins as a file of torch.compiler.save_cache_artifacts() and is damaged: "
                f"{error}",
                "write the file again; torch would compile everything anew",
            ) from error
        self._has_artifact_file = True
        self._artifacts += len(keys)
        self.listed += [{"form": found.kind, "hash": found.key, "file": entry.path} for found in keys]
        self._scan(entry)

    def _scan(self, entry: TreeEntry) -> None:
        self.compiled.scan(entry.path, self._cuda_versions(entry.pieces()))

    def _cuda_versions(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the pieces unchanged, and note the versions of CUDA in them."""
        tail = b""
        for piece in pieces:
            window = tail + piece
            for found in _CUDA.finditer(window):
                if len(self.cuda) == _MAX_CUDA_VERSIONS:
                    break
                self.cuda.add(found[1].decode())
            tail = window[-_CUDA_OVERLAP:]
            yield piece


def inductor_targets(
    scan: InductorScan, kernels: set[GpuTarget], stated: Sequence[GpuTarget], versions: DependencyVersions
) -> list[dict[str, Any]]:
    """Return the label with the GPUs of an inductor cache: from the graphs, else Triton's kernels, else the user.

    Raises:
        GKMError: METADATA_MISSING when the GPU is unknown, METADATA_INVALID when sources contradict each other.
    """
    found = compiled_target(scan.compiled) or kernels
    check_claims(kernels, found, "its Triton kernels are")
    return [
        versions.target(target.backend, target.arch, target.warp_size, cuda)
        for target in found_or_stated(found, stated)
        for cuda in sorted(scan.cuda) or [""]
    ]
