"""Assign the pods of a run to the slots of its plan, one slot for each pod. Pure.

A pod that has a node keeps it: a later plan may number the places anew, and no pod moves.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from gkm.packing.values import Group

from gkm_operator.pods import RunPod

_LAST = 1 << 30


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot of a PlacementPlan, room for one pod on a node; `group` is the position of its group in the plan."""

    number: int
    group: int
    node: str


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod of a Run. `node` is the node that it has or must have; "" if the plan decides."""

    name: str
    facts: RunPod
    node: str = ""
    bound: bool = False
    """Whether spec.nodeName of the pod is set."""

    @property
    def order(self) -> tuple[tuple[int, ...], str]:
        """Return the order in which pods get slots: by number, then by name; pods without a number are last."""
        return self.facts.rank or (_LAST,), self.name


@dataclass(frozen=True, slots=True)
class Assignment:
    """The slot of each pod, by the pod's uid. A pod without a slot has an unplanned node, or waits."""

    held: dict[str, Slot] = field(default_factory=dict)
    """The slots of pods that already have a node."""
    given: dict[str, Slot] = field(default_factory=dict)
    """The slots of pods that wait for a node."""


class PlanSlots:
    """The slots of a PlacementPlan: the slots of each group in node order, then the slots of all spares."""

    def __init__(self, groups: Sequence[Group], gpus_per_pod: int) -> None:
        main = [(at, share.node, share.gpus) for at, group in enumerate(groups) for share in group.nodes]
        spare = [(at, share.node, share.gpus) for at, group in enumerate(groups) for share in group.spares]
        places = [(at, node) for at, node, gpus in (*main, *spare) for _ in range(gpus // gpus_per_pod)]
        self.all = tuple(Slot(number, at, node) for number, (at, node) in enumerate(places))
        self._pods_per_group = max((group.gpus // gpus_per_pod for group in groups), default=0)
        self._ranked = sum(gpus // gpus_per_pod for _, _, gpus in main)

    def own(self, pod: PlacedPod) -> Slot | None:
        """Return the slot that a pod's rank labels name, None if they name no slot."""
        rank = pod.facts.rank
        if not rank or (len(rank) > 1 and rank[1] >= self._pods_per_group):
            return None
        number = rank[0] if len(rank) == 1 else rank[0] * self._pods_per_group + rank[1]
        return self.all[number] if number < self._ranked else None


class _FreeSlots:
    """The slots that no pod has."""

    def __init__(self, slots: Iterable[Slot]) -> None:
        self.all: dict[Slot, None] = dict.fromkeys(slots)
        self._of_group: defaultdict[int, dict[Slot, None]] = defaultdict(dict)
        self._on_node: defaultdict[str, dict[Slot, None]] = defaultdict(dict)
        for slot in self.all:
            self._of_group[slot.group][slot] = self._on_node[slot.node][slot] = None

    def possible(self, pod: PlacedPod) -> dict[Slot, None]:
        """Return the free slots of a pod."""
        return self._on_node[pod.node] if pod.node else self.all

    def near(self, pod: PlacedPod, own: Slot) -> Slot | None:
        """Return the first free slot of a pod in the group of `own`."""
        return next((slot for slot in self._of_group[own.group] if pod.node in ("", slot.node)), None)

    def take(self, slot: Slot) -> None:
        """Give a slot to a pod."""
        for slots in (self.all, self._of_group[slot.group], self._on_node[slot.node]):
            del slots[slot]


def assign(slots: PlanSlots, pods: Iterable[PlacedPod]) -> Assignment:
    """Assign a plan's slots to pods, first to pods that have a node: to each its own slot, one of its group, or any.

    Pods that are being deleted get none: their successors need the slots.
    """
    found, free = Assignment(), _FreeSlots(slots.all)
    ordered = sorted((pod for pod in pods if not pod.facts.terminating), key=lambda pod: pod.order)

    def own(pod: PlacedPod) -> Slot | None:
        slot = slots.own(pod)
        return slot if slot in free.possible(pod) else None

    def near(pod: PlacedPod) -> Slot | None:
        slot = slots.own(pod)
        return None if slot is None else free.near(pod, slot)

    def first(pod: PlacedPod) -> Slot | None:
        return next(iter(free.possible(pod)), None)

    for has_node, taken in ((True, found.held), (False, found.given)):
        some = [pod for pod in ordered if bool(pod.node) is has_node]
        for choose in (own, near, first):
            _take(some, choose, free, taken)
    return found


def _take(
    pods: Iterable[PlacedPod], choose: Callable[[PlacedPod], Slot | None], free: _FreeSlots, taken: dict[str, Slot]
) -> None:
    for pod in pods:
        slot = None if pod.facts.uid in taken else choose(pod)
        if slot is not None:
            free.take(slot)
            taken[pod.facts.uid] = slot
