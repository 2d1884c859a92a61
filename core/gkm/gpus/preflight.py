"""Check whether a cache fits the GPUs of this machine: its build targets against the GPUs. Pure.

The rule is that of upstream's check of the summary label (MCV preflightcheck): a GPU fits if any target has its
backend, its architecture and its warp size; and its driver must be able to run the binaries (gkm.gpus.cuda_drivers). In
doubt a cache fits: a useless cache costs one compilation, a wrong refusal costs one on every pod.
docs/design/preflight.md has the rule as a table.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gkm.api.errors import Reason
from gkm.api.nodes import CompatibleGPUs, IncompatibleGPUs
from gkm.api.targets import GpuTarget, format_arch
from gkm.gpus import cuda_drivers
from gkm.gpus.targets import NormalizedTarget, normalize_target
from gkm.gpus.values import Gpu, printable

MAX_MESSAGE = 512
_CACHED_VERDICTS = 512
"""Verdicts: an agent checks the same caches every few seconds."""
_MAX_LISTED_TARGETS = 6
_MAX_LISTED_CHARACTERS = 24


@dataclass(frozen=True, slots=True)
class Preflight:
    """The verdict: GPUs that fit in one entry, the others by reason. `reason` is None when at least one fits."""

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
    return _checked(tuple(dict.fromkeys(normalize_target(target) for target in targets)), tuple(gpus))


def unusable(gpus: Iterable[Gpu]) -> list[str]:
    """Return a sentence about the GPUs that no cache fits, because they are lost or unreadable, for each fault."""
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


# Of several reasons the message leads with the nearest miss.
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


def _mismatch(targets: Sequence[NormalizedTarget], gpu: Gpu) -> tuple[Reason, str] | None:
    """Return why a GPU does not fit, by the closest target; None where it fits."""
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
    refusals = [cuda_drivers.incompatibility(target, gpu) for target in same_warps]
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
