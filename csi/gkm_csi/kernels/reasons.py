"""Why a cache did not have a kernel: the kernel of the same name in the cache that comes closest. Pure."""

from collections.abc import Iterable

from gkm.hoststate.kernel_misses import MissReason

from gkm_csi.kernels.metadata import KernelMetadata


def reason_of(compiled: KernelMetadata, mounted: Iterable[KernelMetadata]) -> MissReason:
    """Return the reason of a kernel that was compiled; `mounted` are those of the same name in the cache.

    One that differs in fewer respects comes closer. Where several differ, the first in the order of the reasons counts:
    a kernel for another GPU would miss whatever its options are.
    """
    found = [_differences(compiled, each) for each in mounted]
    if not found:
        return MissReason.NO_SUCH_KERNEL
    closest = min(found, key=lambda differences: (len(differences), differences))
    return closest[0][1] if closest else MissReason.OTHER_SOURCE


def _differences(one: KernelMetadata, other: KernelMetadata) -> list[tuple[int, MissReason]]:
    compared = (
        (MissReason.OTHER_GPU, one.target == other.target),
        (MissReason.OTHER_VERSION, one.version == other.version),
        (MissReason.OTHER_ENVIRONMENT, one.environment == other.environment),
        (MissReason.OTHER_OPTIONS, one.options == other.options),
    )
    return [(number, reason) for number, (reason, equal) in enumerate(compared) if not equal]
