"""Which orders are tried: those that the bound suggests, plain ones, and exchanges of a run for others."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gkm.packing.batches.dive import dive
from gkm.packing.batches.ground import Ground
from gkm.packing.batches.packed import Packed, Packer
from gkm.packing.batches.relaxation import Relaxation

_MORE = 2
"""Orders that are planned though no order has more GPUs."""
_Key = Callable[[int], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Sizes:
    """What runs are ordered by: GPUs that must lie in one domain, all GPUs, priority.

    `odd` are the runs whose `unit` does not divide or is not divided by those of most other GPUs: 3 among 1, 2, 4, 8.
    """

    unit: tuple[int, ...]
    gpus: tuple[int, ...]
    priority: tuple[int, ...]
    odd: frozenset[int]

    def largest(self, run: int) -> tuple[int, ...]:
        """Order large groups before small ones, which find room in what is left of domains."""
        return -self.unit[run], -self.gpus[run]

    def oddest(self, run: int) -> tuple[int, ...]:
        """Order groups that go badly with others first: domains that they fill without rest are still free then."""
        return run not in self.odd, -self.unit[run], -self.gpus[run]


def best(
    relaxed: Relaxation, packer: Packer, suggested: frozenset[int], goal: Sequence[int], *, with_solver: bool
) -> Packed:
    """Return the best of the orders that there is time for. `goal` are GPUs by level that no order exceeds.

    Raises:
        TooLargeError: a run is too large to be solved exactly: which one.
    """
    sizes = _sizes(packer.ground, relaxed)
    first, *others = _first(sizes, [run for runs in relaxed.levels for run in runs], suggested)
    found = packer.whole(first)
    if with_solver and found.gpus != tuple(goal):
        found = _better(found, dive(packer, sizes.oddest))
    for number, order in enumerate(others):
        # Where no order has more GPUs, a few more may have fewer domains.
        if number < _MORE or found.gpus != tuple(goal):
            found = _better(found, packer.pack(order, found))
    improved = True
    while improved and found.gpus != tuple(goal):
        improved = False
        for order in _exchanges(relaxed, sizes, found):
            tried = packer.pack(order, found)
            if tried is None:
                return found
            if tried.worth > found.worth:
                found, improved = tried, True
                break
    return found


def _better(found: Packed, tried: Packed | None) -> Packed:
    return tried if tried is not None and tried.worth > found.worth else found


def _sizes(ground: Ground, relaxed: Relaxation) -> Sizes:
    units, asked = [], dict[int, int]()
    for run, one in zip(ground.runs, relaxed.demands, strict=True):
        pods = max((item.pods for item in (*one.items, *one.step_items)), default=0)
        units.append(pods * run.request.pod_gpus)
        asked[units[-1]] = asked.get(units[-1], 0) + one.most
    chain = _chain(asked)
    return Sizes(
        tuple(units),
        tuple(one.most for one in relaxed.demands),
        tuple(run.priority for run in ground.runs),
        frozenset(run for run, unit in enumerate(units) if unit not in chain),
    )


def _chain(asked: dict[int, int]) -> frozenset[int]:
    """Return the sizes of most GPUs of which each divides the next."""
    best: dict[int, tuple[int, frozenset[int]]] = {}
    for size in sorted(filter(None, asked)):
        below = [best[smaller] for smaller in best if size % smaller == 0]
        gpus, chain = max(below, key=lambda item: item[0], default=(0, frozenset[int]()))
        best[size] = gpus + asked[size], chain | {size}
    return max(best.values(), key=lambda item: item[0], default=(0, frozenset[int]()))[1]


def _first(sizes: Sizes, fitting: Sequence[int], suggested: frozenset[int]) -> Iterator[list[int]]:
    """Yield orders of all runs that fit alone. Names decide between equals: the runs are in their order."""

    def by_priority(key: _Key) -> _Key:
        return lambda run: (-sizes.priority[run], *key(run))

    if suggested:
        yield sorted(fitting, key=lambda run: (run not in suggested, *sizes.largest(run)))
        yield sorted(fitting, key=lambda run: (run not in suggested, *sizes.oddest(run)))
    yield sorted(fitting, key=by_priority(sizes.largest))
    yield sorted(fitting, key=by_priority(sizes.oddest))
    yield sorted(fitting, key=by_priority(lambda run: (-sizes.gpus[run], -sizes.unit[run])))
    yield sorted(fitting, key=by_priority(lambda run: (-sizes.unit[run], sizes.gpus[run])))
    yield sorted(fitting, key=sizes.largest)


def _exchanges(relaxed: Relaxation, sizes: Sizes, packed: Packed) -> Iterator[list[int]]:
    """Yield orders with a run that was left out among those of its size, and with none or one of the others put last.

    What comes before them stays as it is, so that it need not be planned again.
    """
    admitted = list(packed.plans)
    rejected = [run for runs in relaxed.levels for run in runs if run not in packed.plans]
    for run in sorted(rejected, key=lambda run: (-sizes.priority[run], -sizes.gpus[run], run)):
        rest = [other for other in rejected if other != run]
        yield [*_with(admitted, run, sizes), *rest]
        outs = [out for out in admitted if sizes.priority[out] <= sizes.priority[run]]
        # Those first of which about as much is lost as is won, and those that lose nothing before those that do.
        for out in sorted(outs, key=lambda out: (*_loss(sizes, run, out), out)):
            kept = [one for one in admitted if one != out]
            if not _exceeds(relaxed, [*kept, run]):
                yield [*_with(kept, run, sizes), *rest, out]


def _loss(sizes: Sizes, run: int, out: int) -> tuple[bool, int]:
    won = sizes.gpus[run] - sizes.gpus[out]
    return sizes.priority[out] == sizes.priority[run] and won <= 0, abs(won)


def _with(order: Sequence[int], run: int, sizes: Sizes) -> list[int]:
    """Return the order with one more run, before the first that is smaller."""
    at = next((at for at, one in enumerate(order) if sizes.largest(one) > sizes.largest(run)), len(order))
    return [*order[:at], run, *order[at:]]


def _exceeds(relaxed: Relaxation, runs: Sequence[int]) -> bool:
    """Return whether no batch has all of these runs."""
    return any(sum(row.base[run] for run in runs) > row.capacity for row in relaxed.rows)
