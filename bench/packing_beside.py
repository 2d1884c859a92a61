"""One case for the planner and its peers: domains, cost and time of each plan."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from gkm.packing.values import Location, Node, Request
from support.packing.costs import Cost
from support.packing.kueue import best_fit, least_free
from support.packing.m2 import Peer, by_rules, by_text

RuleOf = Callable[[Sequence[Node], Request], Peer]
T = TypeVar("T")

RULES: dict[str, RuleOf] = {
    "M2 rules": by_rules,
    "M2 rules, whole pods": lambda nodes, request: by_rules(nodes, request, whole_pods=True),
    "M2 text": by_text,
    "M2 text, whole pods": lambda nodes, request: by_text(nodes, request, whole_pods=True),
    "Kueue preferred=block": best_fit,
    "Kueue slice-only": least_free,
}
"""M2's count GPUs, so that some of their groups have no whole pods; the others count what whole pods can use."""


@dataclass(frozen=True)
class PlanEffect:
    """The effect of a plan on an inventory, for any planner. `milliseconds` are the median of several runs."""

    cost: Cost
    stranded: int
    pristine: int
    milliseconds: float
    note: str = ""

    def __str__(self) -> str:
        """Return domains/blocks/stranded GPUs/pristine domains (ms), and remarks."""
        figures = f"{self.cost.domains}/{self.cost.blocks}/{self.stranded}/{self.pristine}"
        return f"{figures} ({self.milliseconds:.3g} ms){self.note}"


def effect_of_rule(nodes: Sequence[Node], request: Request, rule: RuleOf, times: int) -> tuple[PlanEffect, bool]:
    """Return the effect of a peer's plan, and whether it is valid: every group has a domain that holds its pods."""
    peer, milliseconds = timed(lambda: rule(nodes, request), times)
    note = "" if peer.complete else " incomplete"
    note += f" {peer.invalid} groups invalid" if peer.invalid else ""
    return _effect(nodes, request, set(peer.groups), milliseconds, note), peer.valid


def _effect(nodes: Sequence[Node], request: Request, used: set[Location], milliseconds: float, note: str) -> PlanEffect:
    free = sum(node.free for node in nodes if node.place in used)
    busy = {node.place for node in nodes if node.free < node.total}
    cost = Cost(0, len(used), free, len({place[:3] for place in used}))
    return PlanEffect(cost, free - request.gpus, len(used - busy), milliseconds, note)


def timed(do: Callable[[], T], times: int) -> tuple[T, float]:
    """Call a function once to warm up, then `times` times; return its result and the median in milliseconds."""
    done, seen = do(), []
    for _ in range(times):
        began = time.perf_counter()
        done = do()
        seen.append(1000 * (time.perf_counter() - began))
    return done, median(seen)
