"""Orders in which the runs of a batch are planned: those that the bound suggests, and plain ones."""

from collections.abc import Iterator, Sequence

from gkm.packing.batches.packed import Packed, Packer
from gkm.packing.batches.relaxation import Relaxation

_MORE = 2
"""Orders that are planned though no order has more GPUs: a few more may have fewer domains."""


def best_order(relaxed: Relaxation, packer: Packer, suggested: frozenset[int], goal: Sequence[int]) -> Packed:
    """Return the best of a few orders, in the time that there is. `goal` are GPUs by level that no order exceeds.

    Raises:
        TooLargeError: a run is too large to be planned: which one.
    """
    first, *others = _orders(relaxed, packer, suggested)
    found = packer.pack_fully(first)
    for number, order in enumerate(others):
        if number < _MORE or found.gpus != tuple(goal):
            tried = packer.pack(order)
            if tried is not None and tried.worth > found.worth:
                found = tried
    return found


def _orders(relaxed: Relaxation, packer: Packer, suggested: frozenset[int]) -> Iterator[list[int]]:
    """Yield orders of all runs that fit alone. Names decide between equals: the runs are in their order.

    Large groups come before small ones, which fit in what is left of domains. Before both come groups that go badly
    with others, as 3 among 1, 2, 4 and 8: then domains that they fill without rest are still free.
    """
    fitting = [run for runs in relaxed.levels for run in runs]
    units, gpus, asked = {}, {}, dict[int, int]()
    for run in fitting:
        one, request = relaxed.demands[run], packer.instance.runs[run].request
        units[run] = max((item.pods for item in (*one.items, *one.step_items)), default=1) * request.pod_gpus
        gpus[run] = one.most
        asked[units[run]] = asked.get(units[run], 0) + one.most
    chain = _chain(asked)
    priority = {run: -level for level, runs in enumerate(reversed(relaxed.levels)) for run in runs}
    if suggested:
        yield sorted(fitting, key=lambda run: (run not in suggested, -units[run], -gpus[run]))
        yield sorted(fitting, key=lambda run: (run not in suggested, units[run] in chain, -units[run], -gpus[run]))
    yield sorted(fitting, key=lambda run: (priority[run], -units[run], -gpus[run]))
    yield sorted(fitting, key=lambda run: (priority[run], units[run] in chain, -units[run], -gpus[run]))
    yield sorted(fitting, key=lambda run: (priority[run], -gpus[run], -units[run]))
    yield sorted(fitting, key=lambda run: (-units[run], -gpus[run]))


def _chain(asked: dict[int, int]) -> frozenset[int]:
    """Return the sizes of most GPUs of which each divides the next."""
    best: dict[int, tuple[int, frozenset[int]]] = {}
    for size in sorted(asked):
        below = [best[smaller] for smaller in best if size % smaller == 0]
        gpus, chain = max(below, key=lambda item: item[0], default=(0, frozenset[int]()))
        best[size] = gpus + asked[size], chain | {size}
    return max(best.values(), key=lambda item: item[0], default=(0, frozenset[int]()))[1]
