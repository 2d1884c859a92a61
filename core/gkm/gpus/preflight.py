"""Check whether a cache fits the GPUs of this machine: its build targets against the GPUs. Pure.

The rule is upstream's check of the summary label (MCV preflightcheck): a GPU fits if any target has its
backend, its architecture and its warp size; and its driver must be able to run the binaries. In doubt a cache fits: a
useless cache costs one compilation, a wrong refusal costs a compilation on every pod. docs/reference/preflight.md has
the rule as a table.

A table has the CUDA versions that a driver can run. A cache holds cubins. A cubin runs on every driver of its CUDA's
major version and on every later one (CUDA Compatibility, "Minor Version Compatibility"). Pods may bring a newer
user-mode driver ("Forward Compatibility": the nvidia/cuda images do), so even a driver of an older major version may
run them. This module refuses only a driver that no supported way covers: one older than the oldest branch that NVIDIA's
image of the first release of that CUDA admits (its NVIDIA_REQUIRE_CUDA: "cuda>=12.0 brand=tesla,driver>=450,driver<451
...", "cuda>=13.0 brand=unknown,driver>=535,driver<536 ..."). A CUDA version without a line here is accepted.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gkm.api.errors import Reason
from gkm.api.nodes import CompatibleGPUs, IncompatibleGPUs
from gkm.api.targets import CUDA, GpuTarget, format_arch
from gkm.gpus.targets import NormalizedTarget, normalize_target
from gkm.gpus.values import Gpu, printable

MAX_MESSAGE = 512
_CACHED_VERDICTS = 512
"""Verdicts: an agent checks the same caches every few seconds."""
_MAX_LISTED_TARGETS = 6
_MAX_LISTED_CHARACTERS = 24
# With several reasons, the message leads with the nearest miss.
_REASON_PRIORITY = (
    Reason.GPU_LOST,
    Reason.DRIVER_TOO_OLD,
    Reason.PTX_TOO_NEW,
    Reason.WARP_SIZE_MISMATCH,
    Reason.ARCHITECTURE_MISMATCH,
    Reason.BACKEND_MISMATCH,
    Reason.METADATA_INVALID,
    Reason.METADATA_MISSING,
)
OLDEST_DRIVER = {12: 450, 13: 535}
"""{major version of CUDA: branch of the oldest driver that runs it}."""
CUDA_OF_PTX = {7: 11, 8: 12, 9: 13}
"""{major version of PTX: major version of the CUDA that introduced it}: PTX ISA, "Release Notes", table of releases."""
_MAX_PTX = 199
"""Larger numbers are no version of PTX: MCV writes the major version of the builder's driver into the same field (590),
which is no requirement, because drivers do not compile the files that Triton and vLLM store."""
_CUDA_VERSION = re.compile(r"([0-9]{1,3})(?:\.[0-9]{1,3}){0,2}", re.ASCII)
_DRIVER_VERSION = re.compile(r"([0-9]{3,4})\.[0-9.]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Preflight:
    """Which GPUs of the machine can use a cache, and the others by reason. `reason` is None if at least one fits."""

    compatible: tuple[CompatibleGPUs, ...]
    incompatible: tuple[IncompatibleGPUs, ...]
    reason: Reason | None = None
    message: str = ""

    @property
    def fits(self) -> bool:
        """Return whether at least one GPU can use the cache."""
        return bool(self.compatible)


def check(targets: Iterable[GpuTarget], gpus: Iterable[Gpu]) -> Preflight:
    """Return which GPUs can use a cache that was built for `targets`, and why the others cannot."""
    distinct = dict.fromkeys(normalize_target(target) for target in targets)
    return _checked(tuple(distinct), tuple(gpu.comparable for gpu in gpus))


def unusable(gpus: Iterable[Gpu]) -> list[str]:
    """Return a sentence for each fault of GPUs that can use no cache, because they are lost or unreadable."""
    found: dict[str, list[int]] = {}
    for gpu in sorted(gpus, key=lambda gpu: gpu.index):
        if fault := _unusable(gpu):
            found.setdefault(fault, []).append(gpu.index)
    return [f"{_gpus(ids)}: {fault}" for fault, ids in found.items()]


@lru_cache(_CACHED_VERDICTS)
def _checked(targets: tuple[NormalizedTarget, ...], gpus: tuple[Gpu, ...]) -> Preflight:
    fitting: list[int] = []
    mismatches: dict[tuple[Reason, str], list[int]] = {}
    for gpu in sorted(gpus, key=lambda gpu: gpu.index):
        mismatch = _mismatch(targets, gpu)
        if mismatch is None:
            fitting.append(gpu.index)
        else:
            mismatches.setdefault(mismatch, []).append(gpu.index)
    incompatible = tuple(
        IncompatibleGPUs(ids=ids, reason=reason.value, message=message) for (reason, message), ids in mismatches.items()
    )
    if fitting:
        return Preflight((CompatibleGPUs(ids=fitting),), incompatible)
    if not mismatches:
        return Preflight((), (), Reason.NO_GPU, f"this node has no GPU; the cache is {_built_for(targets)}")
    sentences = [f"{_gpus(ids)}: {message}" for (_, message), ids in mismatches.items()]
    reason = next(iter(sorted((reason for reason, _ in mismatches), key=_REASON_PRIORITY.index)))
    return Preflight((), incompatible, reason, printable("; ".join(sentences), MAX_MESSAGE))


def _mismatch(targets: Sequence[NormalizedTarget], gpu: Gpu) -> tuple[Reason, str] | None:
    """Return why a GPU does not fit, by the closest target; None if it fits."""
    if fault := _unusable(gpu):
        return Reason.GPU_LOST, fault
    if not targets:
        return Reason.METADATA_MISSING, "the image does not state which GPUs it was built for"
    possible = [target for target in targets if target.is_possible]
    if not possible:
        return Reason.METADATA_INVALID, f"the image was built for a GPU that cannot exist: {targets[0].description}"
    return _target_mismatch(possible, gpu)


def _unusable(gpu: Gpu) -> str:
    fault = gpu.fatal_fault
    return printable(f"this GPU cannot be used ({fault.call}: {fault.message})", MAX_MESSAGE) if fault else ""


def _target_mismatch(possible: Sequence[NormalizedTarget], gpu: Gpu) -> tuple[Reason, str] | None:
    """Return the mismatch of a GPU with all targets: backend, architecture, warp size or driver."""
    same_backend = [target for target in possible if target.backend == gpu.backend]
    if not same_backend:
        backends = _listed(target.backend for target in possible)
        return Reason.BACKEND_MISMATCH, f"built for {backends}, this GPU is {gpu.backend}"
    same_arch = [target for target in same_backend if target.arch == gpu.arch]
    if not same_arch:
        gpu_arch = format_arch(gpu.backend, gpu.arch)
        return Reason.ARCHITECTURE_MISMATCH, f"{_built_for(same_backend)}, this GPU is {gpu_arch}"
    same_warps = [target for target in same_arch if target.matches_warp_size(gpu)]
    if not same_warps:
        sizes = _listed(str(target.warp_size) for target in same_arch)
        return Reason.WARP_SIZE_MISMATCH, f"built for a warp size of {sizes}, this GPU has {gpu.warp_size}"
    refusals = [incompatibility(target, gpu) for target in same_warps]
    return None if None in refusals else refusals[0]


def _built_for(targets: Iterable[NormalizedTarget]) -> str:
    archs = {target.arch_name for target in targets}
    in_order = sorted(archs, key=lambda arch: (len(arch), arch))  # sm_90 before sm_100
    return f"built for {_listed(in_order)}" if archs else "built for no GPU it names"


def _listed(texts: Iterable[str]) -> str:
    """Return different texts as a list for people: `a, b and c`."""
    different = list(dict.fromkeys(printable(text, _MAX_LISTED_CHARACTERS) or "(nothing)" for text in texts))
    shown = different[:_MAX_LISTED_TARGETS]
    if len(different) > len(shown):
        shown.append(f"{len(different) - len(shown)} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _gpus(ids: Sequence[int]) -> str:
    """Return indices as people write them: `GPUs 0-3, 5`."""
    ranges: list[tuple[int, int]] = []
    for index in ids:
        if ranges and ranges[-1][1] == index - 1:
            ranges[-1] = (ranges[-1][0], index)
        else:
            ranges.append((index, index))
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
    return f"GPU {text}" if len(ids) == 1 else f"GPUs {text}"


def incompatibility(target: NormalizedTarget, gpu: Gpu) -> tuple[Reason, str] | None:
    """Return why the GPU's driver cannot run the binaries of a target; None if it can, or where that is unknown."""
    driver = _DRIVER_VERSION.fullmatch(gpu.driver_version)
    if gpu.backend != CUDA or driver is None:
        return None
    if stated := _CUDA_VERSION.fullmatch(target.cuda_version):
        cuda, reason, built = int(stated[1]), Reason.DRIVER_TOO_OLD, f"CUDA {target.cuda_version}"
    elif 0 < target.ptx_version <= _MAX_PTX:
        major, minor = divmod(target.ptx_version, 10)
        cuda = CUDA_OF_PTX.get(major, 0)
        reason, built = Reason.PTX_TOO_NEW, f"PTX {major}.{minor} of CUDA {cuda}"
    else:
        return None
    oldest = OLDEST_DRIVER.get(cuda, 0)
    if int(driver[1]) >= oldest:
        return None
    driver_text = printable(f"{gpu.driver_version} (CUDA {gpu.cuda_driver_version or 'unknown'})", 80)
    return reason, f"built with {built}, which runs on drivers from {oldest} on, this GPU has driver {driver_text}"
