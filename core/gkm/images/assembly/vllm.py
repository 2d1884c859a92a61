"""Scan the files that vLLM writes under `torch_compile_cache`, entry by entry during the walk.

Layouts and rules follow MCV's detection and its docs/vllm-binary-cache.md. Manifest and labels equal the ones in images
that MCV built of the same caches in the formats "triton" and "binary", byte for byte
(tests/unit/core/images/assembly/test_mcv_images.py); mega-AOT bundles follow the documentation. GKM differs in three
points: it lists the kernels of every rank, while MCV lists only the last `triton_cache` of a hash, which is the same
for one rank; it removes secrets (gkm.images.assembly.factors_file); and the artifacts determine the GPU.

MCV writes GPU 0 of the machine that builds the image, and without a GPU a default, sm_75 or gfx908. Nodes decide by
that label, so a wrong one does harm. Here the artifacts decide; if they name no GPU, the Triton kernels beside them do,
then the variable that MCV reads, then the user. The machine that builds the image never does. GKM refuses sources that
contradict each other, because one of them is wrong.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from gkm.api import json_limits
from gkm.api.targets import GpuTarget
from gkm.images.assembly.compiled_targets import CompiledTargets, target_of
from gkm.images.assembly.factors_file import is_factors, public
from gkm.images.assembly.go_json import as_map
from gkm.images.assembly.inductor import graph_at
from gkm.images.assembly.target_claims import check_claims, compiled_target, found_or_stated, kernel_targets
from gkm.images.assembly.tree import TreeEntry
from gkm.images.assembly.triton import Kernel, manifest_entry
from gkm.images.assembly.versions import DependencyVersions
from gkm.images.cache import Format, is_valid_target
from gkm.runtimes.vllm import AOT, ARTIFACT, INDEX, RANK, ROOT

_MARKS = ("inductor_cache", "fxgraph", AOT)
_INDUCTOR = "inductor_cache"
_RANK = re.compile(RANK, re.ASCII)
_ARTIFACT = re.compile(ARTIFACT, re.ASCII)
_ARTIFACT_PATH = re.compile(rf"{ROOT}/[^/]+/{RANK}/[^/]+/{ARTIFACT}", re.ASCII)
"""The path of an artifact, or of a file in an unpacked one."""
_Hash = Annotated[str, Meta(max_length=1024)]


class CacheKeyFactors(Struct):
    """cache_key_factors.json: the inputs of vLLM's key for a compilation."""

    code_hash: _Hash | None = None
    compiler_hash: _Hash | None = None
    config_hash: _Hash | None = None
    env: dict[str, Any] | None = None

    def variable(self, name: str) -> str:
        """Return the text of an environment variable in the factors; "" if it is missing or no text."""
        value = (self.env or {}).get(name)
        return value if isinstance(value, str) else ""


@dataclass(slots=True)
class ModelComponent:
    """One component of a model that vLLM compiled for one rank, such as `rank_0_0/backbone`."""

    rank: str
    name: str
    factors: CacheKeyFactors | None = None
    has_factors_file: bool = False
    has_index: bool = False
    artifacts: list[str] = field(default_factory=list)
    unpacked: bool = False

    @property
    def is_complete(self) -> bool:
        """Return whether vLLM can load the component's artifacts.

        Before 0.12 it wrote an index and no factors beside them.
        """
        described = self.factors is not None or (self.has_index and not self.has_factors_file)
        return described and bool(self.artifacts)


@dataclass(slots=True)
class HashDirectory:
    """One model that vLLM compiled: the directory that vLLM names by the hash of its configuration."""

    prefixes: dict[tuple[str, str], ModelComponent] = field(default_factory=dict)
    kernels: list[Kernel] = field(default_factory=list)
    graphs: dict[tuple[str, str], None] = field(default_factory=dict)
    """The graphs in TorchInductor's directory inside it; vLLM 0.33 without AOT writes no other files."""

    @property
    def binaries(self) -> list[ModelComponent]:
        """Return the complete components in the binary format, sorted by name."""
        return [prefix for prefix in self.prefixes.values() if prefix.is_complete]


@dataclass(slots=True)
class VllmScan:
    """The state of a scan of a vLLM directory."""

    has_marker: bool = False
    has_root: bool = False
    hashes: dict[str, HashDirectory] = field(default_factory=dict)
    bundles: dict[str, list[str]] = field(default_factory=dict)
    """The ranks with a model in each mega-AOT bundle."""
    compiled: CompiledTargets = field(default_factory=CompiledTargets)

    @property
    def is_vllm(self) -> bool:
        """Return whether MCV would take the directory for a vLLM cache."""
        return self.has_marker and self.has_root

    def add(self, entry: TreeEntry, kernel: Kernel | None) -> None:
        """Scan one file or directory of vLLM's cache; raises the errors of reading it."""
        parts = entry.path.split("/")
        named = entry.name.endswith(INDEX) or any(mark in entry.path for mark in _MARKS)
        self.has_marker |= named and entry.may_be_mark
        match parts:
            case [root] if root == ROOT:
                self.has_root |= entry.directory
            case [root, aot, hashed, *inside] if root == ROOT and aot == AOT:
                ranks = self.bundles.setdefault(hashed, [])
                if inside[1:] == ["model"] and _RANK.fullmatch(inside[0]) and not entry.directory:
                    ranks.append(inside[0])
                    self.compiled.scan(entry.path, entry.pieces())
            case [root, hashed, *inside] if root == ROOT and hashed != AOT and (inside or entry.directory):
                found = self.hashes.setdefault(hashed, HashDirectory())
                _add_hash(found, inside, entry, kernel)
                graph = _graph(inside)
                if graph:
                    found.graphs[graph] = None
                # Artifacts name the GPU; graphs beside them would only be read again.
                is_compiled = _ARTIFACT_PATH.match(entry.path) or (graph and not found.binaries)
                if is_compiled and not entry.directory:
                    self.compiled.scan(entry.path, entry.pieces())

    @property
    def count(self) -> int:
        """Return the number of models that vLLM compiled, as MCV counts them."""
        return len(self.hashes) + sum(1 for ranks in self.bundles.values() if ranks)

    @property
    def has_compiled(self) -> bool:
        """Return whether the cache has anything but kernels of Triton."""
        models = any(found.binaries or found.graphs for found in self.hashes.values())
        return models or any(self.bundles.values())

    @property
    def factors(self) -> list[CacheKeyFactors]:
        """Return the key factors of all components in the binary format."""
        return [each.factors for found in self.hashes.values() for each in found.binaries if each.factors]

    @property
    def entries(self) -> list[dict[str, Any]]:
        """Return the entries of MCV's manifest in the order of names, bundles last."""
        listed = [
            _hash_entry(name, found)
            for name, found in self.hashes.items()
            if found.binaries or found.kernels or found.graphs
        ]
        return listed + [_bundle_entry(name, ranks) for name, ranks in self.bundles.items() if ranks]


def _graph(inside: list[str]) -> tuple[str, str] | None:
    return graph_at(inside[inside.index(_INDUCTOR) + 1 :]) if _INDUCTOR in inside else None


def _add_hash(found: HashDirectory, inside: list[str], entry: TreeEntry, kernel: Kernel | None) -> None:
    if kernel is not None and "triton_cache" in inside[:-1]:
        found.kernels.append(kernel)
    match inside:
        case [rank, prefix] if _RANK.fullmatch(rank) and entry.directory:
            found.prefixes[rank, prefix] = ModelComponent(rank, prefix)
        case [rank, prefix, name] if (rank, prefix) in found.prefixes:
            component = found.prefixes[rank, prefix]
            if is_factors(entry):
                component.has_factors_file = True
                component.factors = _factors(entry)
            elif name == INDEX:
                component.has_index = True
            elif _ARTIFACT.fullmatch(name):
                component.unpacked |= entry.directory and not component.artifacts
                component.artifacts.append(name)


def _factors(entry: TreeEntry) -> CacheKeyFactors | None:
    try:
        text = entry.read()
        json_limits.check(text)
        factors = msgspec.json.decode(text, type=CacheKeyFactors)
        known = public(factors.env or {})
        factors.env = {key: as_map(value) for key, value in sorted(known.items())}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
        return None
    return factors


def _hash_entry(name: str, found: HashDirectory) -> dict[str, Any]:
    if found.binaries:
        return {"vllmHash": name, "cacheFormat": "binary", "binary": [_binary(prefix) for prefix in found.binaries]}
    if found.kernels:
        kernels = [manifest_entry(kernel) for kernel in found.kernels]
        return {"vllmHash": name, "cacheFormat": "triton", "triton": kernels}
    graphs = [{"form": form, "hash": key} for form, key in found.graphs]
    return {"vllmHash": name, "cacheFormat": "inductor", "inductor": graphs}


def _bundle_entry(name: str, ranks: list[str]) -> dict[str, Any]:
    binaries = [
        {"rank": rank, "prefix": "", "artifact_count": 1, "artifact_names": ["model"], "cache_save_format": "mega-aot"}
        for rank in ranks
    ]
    return {"vllmHash": name, "cacheFormat": "binary", "binary": binaries}


def _binary(prefix: ModelComponent) -> dict[str, Any]:
    factors = prefix.factors or CacheKeyFactors()
    optional = {
        "code_hash": factors.code_hash,
        "config_hash": factors.config_hash,
        "compiler_hash": factors.compiler_hash,
        "cache_save_format": "unpacked" if prefix.unpacked else "binary",
        "target_device": factors.variable("VLLM_TARGET_DEVICE"),
        "env": factors.env,
    }
    return {
        "rank": prefix.rank,
        "prefix": prefix.name,
        "artifact_count": len(prefix.artifacts),
        "artifact_names": prefix.artifacts,
        **{key: value for key, value in optional.items() if value},
    }


MOUNT_PREFIX = "io.kserve.km"
CACHE_ROOT = "VLLM_CACHE_ROOT=/home/kserve/.cache/vllm"
_FORMATS = ("aot_compile", "binary", "inductor", "triton")
"""The second last one is an extension of GKM."""
VARIABLE = "VLLM_PAGED_ATTN_ARCH"


def vllm_labels(vllm_scan: VllmScan) -> dict[str, str]:
    """Return the labels of an image that only vLLM caches have."""
    entries = vllm_scan.entries
    present = {entry["cacheFormat"] for entry in entries}
    hashes = list(dict.fromkeys(entry["vllmHash"] for entry in entries))
    return {
        f"cache.{Format.VLLM.value}.image/format": ",".join(name for name in _FORMATS if name in present),
        f"{MOUNT_PREFIX}/framework": "vllm",
        f"{MOUNT_PREFIX}/cache-type": "torch-compile",
        f"{MOUNT_PREFIX}/cache-hash": ",".join(hashes),
        f"{MOUNT_PREFIX}/cache-mount-subpath": f"{ROOT}/{AOT}" if hashes[0] in vllm_scan.bundles else ROOT,
        f"{MOUNT_PREFIX}/cache-root-env": CACHE_ROOT,
    }


def vllm_targets(
    vllm_scan: VllmScan, kernels: set[GpuTarget], stated: Sequence[GpuTarget], versions: DependencyVersions
) -> list[dict[str, Any]]:
    """Return the label with the GPUs of a vLLM cache; the parameters are as for `kernel_targets`.

    Raises:
        GKMError: METADATA_MISSING when the GPU is unknown, METADATA_INVALID when sources contradict each other.
    """
    factors = vllm_scan.factors
    if not vllm_scan.has_compiled:
        return kernel_targets(kernels, stated, versions)  # a Triton cache in vLLM, which MCV treats as Triton alone
    cuda = sorted({found.variable("VLLM_MAIN_CUDA_VERSION")[:32] for found in factors}) or [""]
    targets = [
        versions.target(found.backend, found.arch_name, found.warp_size, version)
        for found in _targets_of(vllm_scan, kernels, stated)
        for version in cuda
    ]
    return [target for number, target in enumerate(targets) if target not in targets[:number]]


def _targets_of(vllm_scan: VllmScan, kernels: set[GpuTarget], stated: Sequence[GpuTarget]) -> list[GpuTarget]:
    """Return the GPUs of a cache, sorted; `kernels` are the GPUs of Triton's kernels; raises as `vllm_targets`."""
    compiled = compiled_target(vllm_scan.compiled)
    variables = {target for target in map(_variable, vllm_scan.factors) if target}
    found = compiled or kernels or variables
    check_claims(kernels, found, "its Triton kernels are")
    check_claims(variables, found, f"{VARIABLE} in cache_key_factors.json is")
    return found_or_stated(found, stated)


def _variable(factors: CacheKeyFactors) -> GpuTarget | None:
    """Return the GPU in the environment of the compilation."""
    arch = factors.variable(VARIABLE).removeprefix("sm_")
    # Triton and nodes call ROCm's GPUs hip; MCV's "rocm" matches no GPU.
    device = factors.variable("VLLM_TARGET_DEVICE") or "cuda"
    target = target_of({"rocm": "hip"}.get(device, device), arch)
    return target if arch and is_valid_target(target) else None
