"""What is free for a run: allocatable, less pods, less what is held for others. Kept up to date within a sweep."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gkm.hoststate.lru import LRUCache
from gkm.packing.inventory import Inventory
from gkm.packing.inventory_of import Usable, inventory_of, version
from gkm.packing.values import Node, Share
from gkm.topology.eligibility import Demand
from gkm.topology.survey import TopologySurvey

from gkm_operator.plans.state.objects import RunKey
from gkm_operator.plans.state.pod_usage import PodUsage

_KEPT = 8
"""Inventories for as many kinds of runs: each is a few megabytes for 10,000 nodes."""

_NONE: Mapping[str, int] = {}


def reserved_for(claims: Mapping[str, int], own: Mapping[str, int]) -> dict[str, int]:
    """Return the GPUs by node that are held for a run: what its plan has there, less what its pods take there."""
    held = ((node, gpus - own.get(node, 0)) for node, gpus in claims.items())
    return {node: gpus for node, gpus in held if gpus > 0}


class Reservations:
    """What is held for each run, and the sums of it."""

    def __init__(self, holds: Mapping[RunKey, Mapping[str, int]]) -> None:
        self._holds = dict(holds)
        self._version: int | None = None
        self.total: Counter[str] = Counter()
        for held in self._holds.values():
            self.total.update(held)

    def put(self, run: RunKey, held: Mapping[str, int]) -> None:
        """Hold these for a run, in place of what was."""
        self.total.subtract(self._holds.pop(run, _NONE))
        self.total.update(held)
        self.total = +self.total
        self._holds[run] = held
        self._version = None

    @property
    def version(self) -> int:
        """Return what is equal while the same is held."""
        # Asked for by every run that waits.
        if self._version is None:
            self._version = hash(frozenset(self.total.items()))
        return self._version

    def without(self, run: RunKey) -> Counter[str]:
        """Return what is held for all others."""
        others = Counter(self.total)
        others.subtract(self._holds.get(run, _NONE))
        return +others


@dataclass(frozen=True, slots=True)
class FreeGpus:
    """What a run is planned with. `usable` is as it was when the sweep began, its version excepted."""

    usable: Usable
    inventory: Inventory

    @classmethod
    def of(cls, usable: Usable) -> "FreeGpus":
        """Return it with its inventory."""
        return cls(usable, Inventory.from_nodes(usable.nodes))

    @property
    def version(self) -> str:
        """Return what the inventory is called."""
        return self.usable.version

    def less(self, claims: Mapping[str, int]) -> "FreeGpus":
        """Return it without these GPUs; nodes that it does not have do not concern it."""
        numbers = self.inventory.numbers
        shares = [Share(node, gpus) for node, gpus in claims.items() if node in numbers]
        if not shares:
            return self
        # A pod may have come since: then there is less than the plan was promised, and no less than nothing.
        free = [Share(node, min(gpus, self.inventory.nodes[numbers[node]].free)) for node, gpus in shares]
        left = self.inventory.taking(free)
        return FreeGpus(replace(self.usable, nodes=left.nodes, version=version(left.nodes)), left)


class FreeCapacity:
    """The stocks of one sweep."""

    def __init__(self, survey: TopologySurvey, taken: PodUsage, held: Reservations) -> None:
        self._survey = survey
        self._taken = taken
        self.held = held
        self._stocks: LRUCache[str, FreeGpus] = LRUCache(_KEPT)

    def free_for(self, run: RunKey, demand: Demand, staying: Sequence[Node] = (), *, alone: bool) -> FreeGpus:
        """Return what a run may use; `alone` says that it has a plan or pods, which count as free for it.

        `staying` are nodes that nothing new may come to, with what stays there.
        """
        if alone or self._taken.of(run):
            return self._own(run, demand, staying)
        # By what it says: a Demand holds dicts, which have no hash.
        return self._stocks.get_or_create(
            repr(demand),
            lambda: FreeGpus.of(inventory_of(self._survey, self._taken.usage, demand, self.held.total)),
        )

    def record_plan(self, run: RunKey, claims: Mapping[str, int]) -> None:
        """Take in that a run has another plan now; what it had before is free for others from the next sweep on."""
        held = reserved_for(claims, self._taken.of(run))
        self.held.put(run, held)
        for key, stock in self._stocks.items():
            self._stocks.put(key, stock.less(held))

    def _own(self, run: RunKey, demand: Demand, staying: Iterable[Node]) -> FreeGpus:
        usable = inventory_of(self._survey, self._taken.without(run), demand, self.held.without(run))
        extra = list(staying)
        if not extra:
            return FreeGpus.of(usable)
        names = {node.name for node in extra}
        nodes = (*(node for node in usable.nodes if node.name not in names), *extra)
        return FreeGpus.of(replace(usable, nodes=nodes, version=version(nodes)))
