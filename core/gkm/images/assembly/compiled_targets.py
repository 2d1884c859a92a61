"""Find the GPU that vLLM compiled an artifact for, from the compilers' output in it.

An artifact of vLLM's binary format is a pickle of torch: it contains the PTX, the code objects and the device
properties without compression. Three marks name the GPU: `.target sm_75` of PTX, `cc=75` or `cc='gfx90a'` of inductor's
DeviceProperties, and the processor in AMD's code (`amdgcn-amd-amdhsa--gfx90a`, `hip:gfx90a`). Each artifact, also for
CUDA, additionally lists the processors that ROCm's composable kernels support: `['gfx90a', 'gfx942']`. So a quoted gfx
is used only as a value (after `=` or `:`), never as an item of a list.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from gkm.api.targets import CUDA, HIP, RDNA, GpuTarget

MAX_MARK_BYTES = 64
"""More than the longest mark and its boundaries on both sides: the overlap of two pieces."""
_AFTER = rb"(?=[^0-9A-Za-z_])"
_PTX = re.compile(rb"\.target sm_([0-9]{2,3})[a-z]?" + _AFTER)
_CAPABILITY = re.compile(rb"cc=([0-9]{2,3})(?=[^0-9A-Za-z_.])")
_AMD = re.compile(rb"gfx[1-9][0-9]?[0-9a-f]{2}" + _AFTER)
_WORD_BOUNDARY = re.compile(rb"[^0-9A-Za-z_]\Z")
_VALUE_BOUNDARY = re.compile(rb"(?:[=:] ?\\*['\"]|[^0-9A-Za-z_'\"])\Z")
_BEFORE_BYTES = 8


def target_of(backend: str, arch: str) -> GpuTarget:
    """Return the GPU target of an architecture with its warp size; 0 for an unknown backend."""
    if backend == HIP:
        return GpuTarget(backend, arch, 32 if RDNA.fullmatch(arch) else 64)
    return GpuTarget(backend, arch, 32 if backend == CUDA else 0)


@dataclass(slots=True)
class CompiledTargets:
    """Collects the GPUs that a cache's artifacts name, each with the first artifact that names it.

    More than one is a contradiction.
    """

    named_in: dict[GpuTarget, str] = field(default_factory=dict)

    def scan(self, path: str, pieces: Iterable[bytes]) -> None:
        """Search the artifact at `path` for names of GPUs, piece by piece; raises the errors of reading it."""
        if self.is_ambiguous:
            return
        for target in _targets(pieces):
            self.named_in.setdefault(target, path)
            if len(self.named_in) > 1:
                return

    @property
    def is_ambiguous(self) -> bool:
        """Return whether the artifacts name two GPUs."""
        return len(self.named_in) > 1


def _targets(pieces: Iterable[bytes]) -> Iterator[GpuTarget]:
    """Yield a target for each kind of mark in each piece; a mark in the overlap of two pieces may come twice."""
    tail = b"\n"
    for piece in pieces:
        window = tail + piece
        yield from _marks(window)
        tail = window[-MAX_MARK_BYTES:]
    yield from _marks(tail + b"\n")


def _marks(window: bytes) -> Iterator[GpuTarget]:
    """Yield the targets that the marks in a window name, each once."""
    cuda, hip = {found[1] for found in _PTX.finditer(window)}, set[bytes]()
    for found in _CAPABILITY.finditer(window):
        if found[1] not in cuda and _starts_at(_WORD_BOUNDARY, window, found.start()):
            cuda.add(found[1])
    for found in _AMD.finditer(window):
        if found[0] not in hip and _starts_at(_VALUE_BOUNDARY, window, found.start()):
            hip.add(found[0])
    yield from (target_of(CUDA, arch.decode()) for arch in sorted(cuda))
    yield from (target_of(HIP, arch.decode()) for arch in sorted(hip))


def _starts_at(pattern: re.Pattern[bytes], window: bytes, start: int) -> bool:
    return pattern.search(window, max(0, start - _BEFORE_BYTES), start) is not None
