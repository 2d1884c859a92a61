"""Whether a cache fits the GPUs of this machine: what it was built for against what is here. Pure.

The rule is that of upstream's check of the summary label (MCV preflightcheck): a GPU fits if ANY target has its
backend, its architecture (for cuda without "sm_") and its warp size. Targets come from labels that anybody may have
written: whatever of them reaches a message is bounded and printable.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gkm.api.errors import Reason
from gkm.api.nodes import CompatibleGPUs, IncompatibleGPUs
from gkm.gpus.values import Gpu, printable

MAX_MESSAGE = 512
_SHOWN_TARGETS = 6
_SHOWN_LENGTH = 24


class Target(Protocol):
    """What a cache was built for."""

    @property
    def backend(self) -> str:
        """Return `cuda`, `hip`, ..."""

    @property
    def arch(self) -> str:
        """Return `90` or `sm_90` for cuda, `gfx942` for hip."""

    @property
    def warp_size(self) -> int:
        """Return the number of threads that run together."""


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


def check(targets: Iterable[Target], gpus: Iterable[Gpu]) -> Preflight:
    """Return which GPUs can use what was built for `targets`, and why the others cannot."""
    wanted = tuple(targets)
    fitting: list[int] = []
    misses: dict[tuple[Reason, str], list[int]] = {}
    for gpu in sorted(gpus, key=lambda gpu: gpu.index):
        miss = _miss(wanted, gpu)
        if miss is None:
            fitting.append(gpu.index)
        else:
            misses.setdefault(miss, []).append(gpu.index)
    incompatible = tuple(
        IncompatibleGPUs(ids=ids, reason=reason.value, message=message) for (reason, message), ids in misses.items()
    )
    if fitting:
        return Preflight((CompatibleGPUs(ids=fitting),), incompatible)
    if not misses:
        return Preflight((), (), Reason.NO_GPU, f"this node has no GPU; the cache is {_built_for(wanted)}")
    sentences = [f"{_gpus(ids)}: {message}" for (_, message), ids in misses.items()]
    reason = next(iter(sorted((reason for reason, _ in misses), key=_NEARNESS.index)))
    return Preflight((), incompatible, reason, printable("; ".join(sentences), MAX_MESSAGE))


# Of several reasons the nearest miss is the one to act on.
_NEARNESS = (
    Reason.GPU_LOST,
    Reason.WARP_SIZE_MISMATCH,
    Reason.ARCHITECTURE_MISMATCH,
    Reason.BACKEND_MISMATCH,
    Reason.METADATA_MISSING,
)


def _miss(targets: Sequence[Target], gpu: Gpu) -> tuple[Reason, str] | None:
    """Return why a GPU does not fit: what the target that comes closest lacks. None: it fits."""
    fault = gpu.unusable
    if fault is not None:
        return Reason.GPU_LOST, printable(f"this GPU cannot be used ({fault.call}: {fault.message})", MAX_MESSAGE)
    if not targets:
        return Reason.METADATA_MISSING, "the image does not say which GPUs it was built for"
    same_backend = [target for target in targets if target.backend == gpu.backend]
    if not same_backend:
        built = _listed(target.backend for target in targets)
        return Reason.BACKEND_MISMATCH, f"built for {built}, this GPU is {gpu.backend}"
    same_arch = [target for target in same_backend if _plain_arch(target) == gpu.arch]
    if not same_arch:
        return Reason.ARCHITECTURE_MISMATCH, f"{_built_for(same_backend)}, this GPU is {_shown(gpu.backend, gpu.arch)}"
    if all(target.warp_size != gpu.warp_size for target in same_arch):
        sizes = _listed(str(target.warp_size) for target in same_arch)
        return Reason.WARP_SIZE_MISMATCH, f"built for a warp size of {sizes}, this GPU has {gpu.warp_size}"
    return None


def _plain_arch(target: Target) -> str:
    return target.arch.removeprefix("sm_") if target.backend == "cuda" else target.arch


def _shown(backend: str, arch: str) -> str:
    return f"sm_{arch}" if backend == "cuda" else arch


def _built_for(targets: Iterable[Target]) -> str:
    archs = {_shown(target.backend, _plain_arch(target)) for target in targets}
    in_order = sorted(archs, key=lambda arch: (len(arch), arch))  # sm_90 before sm_100
    return f"built for {_listed(in_order)}" if archs else "built for no GPU it names"


def _listed(texts: Iterable[str]) -> str:
    """Return different texts as a person lists them: `a, b and c`."""
    different = list(dict.fromkeys(printable(text, _SHOWN_LENGTH) or "(nothing)" for text in texts))
    shown = different[:_SHOWN_TARGETS]
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
