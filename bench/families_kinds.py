"""Two kinds of GPU in one family: each node takes the variant that fits its GPUs, and pods keep their manifest.

The GPUs are made up, the kernels are real ones of Triton for the architectures. The node of the kubelet has H100s, then
A100s, then H100s again. The second node has H100s and the third one A100s all the time.
"""

import time
from collections.abc import Sequence

from support.e2e.families import Family, other_gpus
from support.fakes.nvml_library import A100

SECOND, THIRD = "second-node", "third-node"


def side_by_side(family: Family, kernels: Sequence[str]) -> dict[str, float]:
    """Return the seconds from the end of a pod on a new kind of GPU until the node of that kind has its variant.

    Raises:
        RuntimeError: a pod compiled a kernel that a variant for its GPU has, or did not compile one that none has.
    """
    here = family.fleet.cluster.node_name
    hopper, ampere = ([f"{kernel}:{arch}" for kernel in kernels] for arch in (90, 80))
    expect(family.compiled(*hopper), hits=0)
    family.ready(1, here)
    with other_gpus(family.fleet, A100):
        family.reaches(1, here, state="Incompatible")
        expect(family.compiled(*ampere), hits=0)
        ended = time.monotonic()
        family.reaches(2, THIRD, state="Ready", chosen=True)
        seconds = time.monotonic() - ended
        family.reaches(2, here, state="Ready", chosen=True)
        expect(family.compiled(*ampere), hits=len(ampere))
        family.reaches(1, SECOND, state="Ready", chosen=True)
        family.reaches(2, SECOND, state="Incompatible")
        family.reaches(1, THIRD, state="Incompatible")
    family.reaches(1, here, state="Ready", chosen=True)
    expect(family.compiled(*hopper), hits=len(hopper))
    return {"variant_ready_elsewhere_s": seconds}


def expect(found: Sequence[bool], *, hits: int) -> None:
    """Raise RuntimeError unless a pod found so many of its kernels."""
    if sum(found) != hits:
        raise RuntimeError(f"{sum(found)} of {len(found)} kernels were hits instead of {hits}")
