"""What a run is planned with again, and what comes out: frozen values."""

from dataclasses import dataclass

from gkm.packing.values import MAX_GPUS, Group, Plan, Share


@dataclass(frozen=True, slots=True)
class FormerPlan:
    """The groups of the former plan, in the order of their numbers. Numbers may be missing."""

    groups: tuple[Group, ...]

    def __post_init__(self) -> None:
        """Refuse what no plan can be.

        Raises:
            ValueError: which group, and why.
        """
        for before, group in zip((None, *self.groups), self.groups, strict=False):
            if group.index < 0 or (before is not None and before.index >= group.index):
                raise ValueError(f"group {group.index} of the former plan is out of order, or there twice")
            # bool is an int to Python, and NaN compares with nothing: only whole numbers are let in.
            if not all(type(gpus) is int and 1 <= gpus <= MAX_GPUS for _, gpus in group.nodes):
                raise ValueError(f"group {group.index} of the former plan takes an impossible number of GPUs of a node")
            if sum(gpus for _, gpus in group.nodes) != group.gpus:
                raise ValueError(f"group {group.index} of the former plan says {group.gpus} GPUs, its nodes another")
            if len({name for name, _ in group.nodes}) < len(group.nodes):
                raise ValueError(f"group {group.index} of the former plan names a node twice")


@dataclass(frozen=True, slots=True)
class Repair:
    """A group that stays in its domain and scope, with other nodes: what it gives up and what it takes, in GPUs.

    `spares` are the pods that went to the nodes of spares, its own or its neighbours'.
    """

    group: int
    lost: tuple[Share, ...]
    taken: tuple[Share, ...]
    spares: int


@dataclass(frozen=True, slots=True)
class Replanned:
    """A plan of a run that has one already. Groups are named by their numbers, which they keep.

    `kept` are on the nodes that they were on. `moved` were in the former plan and go elsewhere; groups that were in no
    plan before are in none of the three. `plan.groups` lacks numbers where a malleable run became smaller: those of
    the groups that do not run, and has fewer spares than asked for where there is no room for more: `reasons` names
    these groups. `spares_used` are pods.
    """

    plan: Plan
    kept: tuple[int, ...]
    repaired: tuple[Repair, ...]
    moved: tuple[int, ...]
    spares_used: int
    reasons: tuple[str, ...]
