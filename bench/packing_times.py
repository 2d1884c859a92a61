"""The time to plan one run, at full size on 100,000 GPUs: p50 and p99 of every case, policy and kind of request.

Kinds: plain; with a spare a group; with a short last group; with both; and paid by two scopes, each with half of the
domains and a ceiling that binds. The inventory is made before, as a controller has it; its construction
is timed apart. Wall time and CPU time are of the same calls, and Python's garbage collector runs as usual.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from statistics import median

from gkm.packing.inventory import Inventory
from gkm.packing.plan import plan
from gkm.packing.values import Ceiling, Node, Plan, Policy, Request, TooLargeError
from packing_report import Cell, Table
from support.packing.checker import problems
from support.packing.inventories import Run, inventory

_EAST, _WEST = "east", "west"
PLAIN = {"plain": (0, 0), "spares": (1, 0), "short": (0, 1), "spares, short": (1, 1)}
"""Spares a group, and pods that the last group lacks."""
SCOPES = "two scopes"


@dataclass(frozen=True)
class TimesSize:
    """The cases, the calls of each, and the bound for p99 of every kind without scopes.

    It is one of CPU time: on a busy machine, wall time includes other load.
    """

    runs: Sequence[Run]
    samples: int
    slow_ms: float


@dataclass
class Times:
    """A row for each case and kind of request, with the policies side by side, and failures."""

    size: TimesSize
    rows: list[dict[str, Cell]] = field(default_factory=list)
    making: list[dict[str, Cell]] = field(default_factory=list)
    worst: dict[str, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def tables(self) -> list[Table]:
        """Return the times."""
        return [
            Table(f"one run: ms of plan(), p50/p99 (CPU p50/p99) of {self.size.samples} calls", self.rows),
            Table("ms of Inventory.from_nodes, in whatever order nodes come", self.making),
        ]

    def figures(self) -> dict[str, float]:
        """Return the worst of all cases."""
        return {name: round(value, 1) for name, value in self.worst.items()}

    def note(self, name: str, value: float) -> None:
        """Return the largest."""
        self.worst[name] = max(self.worst.get(name, 0.0), value)


def measured(size: TimesSize) -> Times:
    """Time every case."""
    seen = Times(size)
    for name in dict.fromkeys(run.inventory for run in size.runs):
        nodes = inventory(name)
        seen.making.append(_making(nodes, name, size.samples))
        for scoped, tree in ((False, nodes), (True, _in_scopes(nodes))):
            made = Inventory.from_nodes(tree)
            for run in size.runs:
                if run.inventory == name:
                    seen.rows += [_row(seen, run, made, kind) for kind in _kinds(scoped=scoped)]
    seen.rows.sort(key=lambda row: [f"{run}" for run in size.runs].index(str(row["case"])))
    return seen


def _kinds(*, scoped: bool) -> Iterator[str]:
    yield from (SCOPES,) if scoped else PLAIN


def _row(seen: Times, run: Run, made: Inventory, kind: str) -> dict[str, Cell]:
    row: dict[str, Cell] = {"case": f"{run}", "kind": kind}
    for policy in Policy:
        request = _request(run, policy, kind)
        try:
            answer = plan(made, request, "bench")
        except TooLargeError:
            row[f"{policy}"] = "too large"
            seen.worst["too_large"] = seen.worst.get("too_large", 0.0) + 1
            continue
        if not isinstance(answer, Plan):
            row[f"{policy}"] = "refused"
            seen.failures.append(f"{run}, {kind}, {policy}: refused, {answer.message}")
            continue
        seen.failures += [f"{run}, {kind}, {policy}: {wrong}" for wrong in problems(made.nodes, request, answer)]
        wall, used = _samples(made, request, seen.size.samples)
        slowest, most = percentile(wall, 99), percentile(used, 99)
        row[f"{policy}"] = f"{median(wall):.1f}/{slowest:.1f} ({median(used):.1f}/{most:.1f})"
        name = "scopes" if kind == SCOPES else "plan"
        seen.note(f"{name}_p50_ms", median(wall))
        seen.note(f"{name}_p99_ms", slowest)
        seen.note(f"{name}_cpu_p99_ms", most)
        if kind != SCOPES and most > (slow := seen.size.slow_ms):
            seen.failures.append(f"{run}, {kind}, {policy}: p99 is {most:.1f} ms of CPU time, above {slow:.0f}")
    return row


def _request(run: Run, policy: Policy, kind: str) -> Request:
    if kind != SCOPES:
        spares, short_by = PLAIN[kind]
        return run.request(policy, spares=spares, short_by=short_by)
    request = run.request(policy)
    ceiling = request.group_gpus * max(1, 3 * request.groups // 4)
    return replace(request, ceilings=(Ceiling(_EAST, ceiling), Ceiling(_WEST, ceiling)))


def _in_scopes(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return the nodes with the first half of the domains in one scope, and the rest in another."""
    places = sorted({node.place for node in nodes})
    middle = places[len(places) // 2]
    return tuple(replace(node, scopes=frozenset({_EAST if node.place < middle else _WEST})) for node in nodes)


def _samples(made: Inventory, request: Request, samples: int) -> tuple[list[float], list[float]]:
    """Return milliseconds of wall and CPU time of each call, after a call to warm up."""
    wall, used = [], []
    for _ in range(samples):
        began, cpu = time.perf_counter(), time.process_time()
        plan(made, request, "bench")
        wall.append(1000 * (time.perf_counter() - began))
        used.append(1000 * (time.process_time() - cpu))
    return wall, used


def _making(nodes: Sequence[Node], name: str, samples: int) -> dict[str, Cell]:
    wall = []
    for turn in range(samples):
        # A list that begins elsewhere each time: neither sorted nor shuffled, as what a watch holds.
        turned = [*nodes[turn * 97 % len(nodes) :], *nodes[: turn * 97 % len(nodes)]]
        began = time.perf_counter()
        Inventory.from_nodes(turned)
        wall.append(1000 * (time.perf_counter() - began))
    return {"inventory": name, "nodes": len(nodes), "p50": median(wall), "p99": percentile(wall, 99)}


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the percentile of the values."""
    return sorted(values)[max(0, ceil(len(values) * percent / 100) - 1)]
