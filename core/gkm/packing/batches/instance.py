"""The instance of a batch: its runs, their nodes, and what earlier runs leave of these."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gkm.packing.batches.values import MAX_RUNS, InvalidBatchError, Queued
from gkm.packing.inventory import InvalidInventoryError, Inventory
from gkm.packing.values import Node, Plan, Share


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """The runs, the highest priority first and by name, and their inventories: `uses` has the number of each run's."""

    runs: tuple[Queued, ...]
    inventories: tuple[Inventory, ...]
    uses: tuple[int, ...]

    @property
    def union(self) -> Inventory:
        """Return all nodes that any run may use, each once."""
        used = sorted(set(self.uses))
        if len(used) == 1:
            return self.inventories[used[0]]
        nodes = {node.name: node for number in used for node in self.inventories[number].nodes}
        return Inventory.from_nodes(nodes.values())

    @classmethod
    def of(cls, nodes: Iterable[Node] | Inventory, queue: Sequence[Queued]) -> "Instance":
        """Return the instance of a batch: the same one in whatever order runs and nodes come.

        Raises:
            InvalidBatchError: there are too many runs, or two have one name.
            InvalidInventoryError: nodes contradict each other or themselves.
        """
        runs = _ordered(queue)
        shared = nodes if isinstance(nodes, Inventory) else Inventory.from_nodes(nodes)
        own: list[tuple[Node, ...]] = []
        inventories, uses = [shared], []
        for run in runs:
            if run.nodes is None:
                uses.append(0)
                continue
            if run.nodes not in own:
                own.append(run.nodes)
                inventories.append(Inventory.from_nodes(run.nodes))
            uses.append(1 + own.index(run.nodes))
        if own:
            _check(inventories)
        return cls(runs, tuple(inventories), tuple(uses))


def _ordered(queue: Sequence[Queued]) -> tuple[Queued, ...]:
    if len(queue) > MAX_RUNS:
        raise InvalidBatchError(
            f"{len(queue)} runs are more than the {MAX_RUNS} that a batch has: plan those of the highest priority first"
        )
    ordered = sorted(queue, key=lambda run: (-run.priority, run.name))
    names: set[str] = set()
    for run in ordered:
        if run.name in names:
            raise InvalidBatchError(f"two runs are called {run.name!r}: a batch has each of its runs once")
        names.add(run.name)
    return tuple(ordered)


def _check(inventories: Sequence[Inventory]) -> None:
    known: dict[str, Node] = {}
    for node in (node for inventory in inventories for node in inventory.nodes):
        first = known.setdefault(node.name, node)
        if first is not node and (first.place, first.total, first.free) != (node.place, node.total, node.free):
            raise InvalidInventoryError(
                f"two runs list node {node.name!r} differently: {first.free} of {first.total} GPUs in "
                f"{'/'.join(first.place)}, and {node.free} of {node.total} in {'/'.join(node.place)}"
            )


@dataclass(slots=True)
class Remaining:
    """What is left of the instance while runs are planned one after another."""

    instance: Instance
    _inventories: list[Inventory] = field(init=False)
    _seen: list[int] = field(init=False)
    _taken: list[Share] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        """Begin with all there is."""
        self._inventories = list(self.instance.inventories)
        self._seen = [0] * len(self._inventories)

    def take(self, plan: Plan) -> None:
        """Give a plan its nodes."""
        self._taken += [share for group in plan.groups for share in group.shares]

    def of_run(self, run: int) -> Inventory:
        """Return what a run may still use. An inventory is brought up to date when it is asked for, and not before."""
        number = self.instance.uses[run]
        inventory, new = self._inventories[number], self._taken[self._seen[number] :]
        here = [share for share in new if share.node in inventory.numbers]
        if here:
            self._inventories[number] = inventory.taking(here)
        self._seen[number] = len(self._taken)
        return self._inventories[number]
