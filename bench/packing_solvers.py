"""Solvers that prove what the best plan costs: HiGHS, and CP-SAT if GKM_CPSAT_PYTHON names a Python that has it.

OR-Tools needs another release of protobuf, so that CP-SAT runs in a process of GKM_CPSAT_PYTHON: the interpreter
of a virtual environment of its own into which `pip install ortools` was made. Without the variable it is left out.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gkm.packing.values import Location, Node, Request
from support.packing.costs import ORDERS, Cost
from support.packing.reference import IntegerProgram

_MODEL = Path(__file__).resolve().parent / "packing_cpsat.py"
_GIVE_UP_AFTER = 60.0


@dataclass(frozen=True)
class Solved:
    """The cost that a solver found, None where it found no plan.

    `states` has a letter for each part of the cost, in the order of the policy (support.packing.reference.Minimum).
    """

    cost: Cost | None
    states: str

    @property
    def proven(self) -> bool:
        """Return whether nothing is cheaper, or nothing fits."""
        return not set(self.states) & {"F", "-"}


@dataclass(frozen=True)
class Found:
    """The result of a solver and its time, with the construction of the model and without the start of a process."""

    solved: Solved
    milliseconds: float


Solve = Callable[[Sequence[Node], Request, float], Found]


def by_highs(nodes: Sequence[Node], request: Request, seconds: float) -> Found:
    """Solve with one thread, `seconds` at most for each part of the cost."""
    began = time.perf_counter()
    program, values, states = IntegerProgram(nodes, request), {"elsewhere": 0}, ""
    for name in ORDERS[request.policy][0 if request.spares else 1 :]:
        state, value = program.minimum(program.costs[name], seconds)
        states += state
        if value is None:
            break
        values[name] = value
    solved = Solved(Cost(**values) if value is not None else None, states)
    return Found(solved, 1000 * (time.perf_counter() - began))


def by_cpsat(nodes: Sequence[Node], request: Request, seconds: float) -> Found:
    """Solve with two workers. The request has no spares, no scopes and no short last group.

    Raises:
        subprocess.SubprocessError: the other Python fails or times out.
    """
    assert request.last_pods == request.group_pods
    assert not request.spares
    order = sorted(("domains", "free", "blocks"), key=lambda name: _rank(request, name))
    problem = {"domains": _domains(nodes, request), "groups": request.groups, "order": order, "seconds": seconds}
    done = subprocess.run(
        [os.environ["GKM_CPSAT_PYTHON"], _MODEL],
        input=json.dumps(problem).encode(),
        stdout=subprocess.PIPE,
        timeout=len(order) * seconds + _GIVE_UP_AFTER,
        check=True,
    )
    answer = json.loads(done.stdout)
    cost = Cost(elsewhere=0, **answer["cost"]) if answer["cost"] else None
    return Found(Solved(cost, answer["states"]), answer["milliseconds"])


def _rank(request: Request, name: str) -> int:
    """Return which part of the cost comes how early in the order of the request's policy."""
    parts = {"domains": 1, "free": 2, "blocks": 3}
    return Cost(elsewhere=0, **parts).by(request.policy).index(parts[name])


def _domains(nodes: Sequence[Node], request: Request) -> list[tuple[int, int, int]]:
    """Return (groups that fit, free GPUs, number of the block) of every domain that holds a group."""
    slots: dict[Location, int] = {}
    free: dict[Location, int] = {}
    for node in nodes:
        slots[node.place] = slots.get(node.place, 0) + node.free // request.pod_gpus
        free[node.place] = free.get(node.place, 0) + node.free
    blocks = {block: number for number, block in enumerate(sorted({place[:3] for place in slots}))}
    return [
        (count // request.group_pods, free[place], blocks[place[:3]])
        for place, count in slots.items()
        if count >= request.group_pods
    ]


def shown(found: Found, request: Request) -> str:
    """Return domains/blocks/stranded GPUs (ms) and the state of each part of the cost, as a table has it."""
    cost, time_taken = found.solved.cost, f"({found.milliseconds:.0f} ms) {found.solved.states}"
    return f"{cost.domains}/{cost.blocks}/{cost.free - request.gpus} {time_taken}" if cost else f"none {time_taken}"


SOLVERS: dict[str, Solve] = {"HiGHS": by_highs}
if os.environ.get("GKM_CPSAT_PYTHON"):
    SOLVERS["CP-SAT"] = by_cpsat
