"""Planning as the bound suggests, and asking it again after the runs of each size: what is left is then known exactly.

The bound takes it that sizes go together as well as their sums do. Where they do not, some run that it suggests does
not fit, and whichever had better be admitted instead is seen only from what is left.
"""

from collections.abc import Callable

from gkm.packing.batches.bounds import Bounds
from gkm.packing.batches.packed import Packed, Packer
from gkm.packing.batches.relaxation import relaxation


def dive(packer: Packer, key: Callable[[int], tuple[int, ...]]) -> Packed | None:
    """Return a batch that follows the bound; None where there is no time.

    Runs with the smallest keys come first, and those whose keys differ in the last part alone, their GPUs, together.

    Raises:
        TooLargeError: a run is too large to be solved exactly: which one.
    """
    packed = packer.empty()
    waiting = [run for runs in packer.levels for run in runs]
    while waiting:
        bounds = Bounds(relaxation(packed.left.ground_of(waiting)), solver=True, until=packer.until)
        chosen = sorted((waiting[number] for number in sorted(bounds.suggestion()[0])), key=key)
        packer.cut_short = packer.cut_short or bounds.cut_short
        if not chosen:
            return packed
        for run in (run for run in chosen if key(run)[:-1] == key(chosen[0])[:-1]):
            if not packer.goes_on:
                return None
            packer.add(packed, run)
            waiting.remove(run)
    return packed
