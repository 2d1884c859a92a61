"""The cases of the side-by-side table, in one run: the planner in every policy, M2's rules, Kueue's, HiGHS and CP-SAT.

Every plan of ours is checked by the checker of the tests, and compared with every peer's in the order of each policy.
Peers are Python as we are, and make up the domains from the nodes each time (5 to 20 ms for 100,000 GPUs); the planner
has its inventory made before, as a controller has. HiGHS and CP-SAT are given a time limit for each part of the cost.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from gkm.packing.inventory import Inventory
from gkm.packing.plan import plan
from gkm.packing.values import Node, Plan, Policy, Refusal
from packing_beside import RULES, PlanEffect, effect_of_rule, timed
from packing_report import Cell, Row, Table
from packing_solvers import SOLVERS, shown
from support.packing.brute import priced
from support.packing.checker import problems
from support.packing.costs import Cost
from support.packing.inventories import Run, inventory


@dataclass(frozen=True)
class CasesSize:
    """The cases, how often each is planned for the median time, and the limit of solvers for a part of the cost."""

    runs: Sequence[Run]
    times: int
    solver_seconds: float


@dataclass
class SideBySide:
    """The result: a row for each case, the comparison with each peer, and failures."""

    rows: list[dict[str, Cell]] = field(default_factory=list)
    compared: dict[str, Counter[str]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    gaps: list[int] = field(default_factory=list)

    def tables(self) -> list[Table]:
        """Return the cases, and the comparison."""
        cells = "domains/blocks/stranded GPUs/pristine domains (median ms)"
        verdicts: list[Row] = [
            {"peer": peer, **{verdict: counts[verdict] for verdict in ("better", "equal", "worse", "no plan")}}
            for peer, counts in self.compared.items()
        ]
        return [
            Table(f"one run, side by side: {cells}; O proven, F best found in time", self.rows),
            Table("the planner's plans, each in the order of its policy, against those of", verdicts),
        ]

    def figures(self) -> dict[str, float]:
        """Return the sums that reveal a regression."""
        counts = Counter[str]()
        for seen in self.compared.values():
            counts += seen
        return {
            "cases": float(len(self.rows)),
            "largest_gap": float(max(self.gaps)),
            "optimal_percent": 100 * self.gaps.count(0) / len(self.gaps),
            **{f"{verdict}_than_peers": float(counts[verdict]) for verdict in ("better", "worse")},
            "equal_to_peers": float(counts["equal"]),
        }

    def count(self, peer: str, verdict: str, case: str) -> None:
        """Add the comparison of one case."""
        self.compared.setdefault(peer, Counter())[verdict] += 1
        if verdict == "worse":
            self.failures.append(f"{case}: {peer} is cheaper")


def measured(size: CasesSize) -> SideBySide:
    """Run every case."""
    seen = SideBySide()
    inventories = {name: inventory(name) for name in dict.fromkeys(run.inventory for run in size.runs)}
    for run in size.runs:
        seen.rows.append(_case(size, seen, run, inventories[run.inventory]))
    return seen


def _case(size: CasesSize, seen: SideBySide, run: Run, nodes: Sequence[Node]) -> dict[str, Cell]:
    ours = {policy: _ours(size, seen, run, nodes, policy) for policy in Policy}
    row: dict[str, Cell] = {"case": run.inventory, "KxG": f"{run.groups}x{run.group_gpus}"}
    row["bound"] = "/".join(str(answer.metrics.lower_bound) if answer else "-" for answer, _ in ours.values())
    for name, rule in RULES.items():
        peer, valid = effect_of_rule(nodes, run.request(), rule, size.times)
        row[name] = str(peer)
        for policy, (_, placed) in ours.items():
            seen.count(name, _verdict(placed, peer.cost, policy) if valid else "no plan", f"{run} in policy {policy}")
    for policy, (_, placed) in ours.items():
        row[f"ours, {policy}"] = str(placed) if placed else "refused"
    for name, solve in SOLVERS.items():
        for policy, (_, placed) in ours.items():
            found = solve(nodes, run.request(policy), size.solver_seconds)
            row[f"{name}, {policy}"] = shown(found, run.request())
            verdict = "no plan" if found.solved.cost is None else _verdict(placed, found.solved.cost, policy)
            seen.count(name, verdict, f"{run} in policy {policy}")
            if verdict == "better" and found.solved.proven:
                seen.failures.append(f"{run} in policy {policy}: {name} proves that nothing costs as little as ours")
    return row


def _ours(
    size: CasesSize, seen: SideBySide, run: Run, nodes: Sequence[Node], policy: Policy
) -> tuple[Plan | None, PlanEffect | None]:
    """Return our plan for a policy, and its effect."""
    request, made = run.request(policy), Inventory.from_nodes(nodes)
    answer, milliseconds = timed(lambda: plan(made, request, "bench"), size.times)
    if isinstance(answer, Refusal):
        seen.failures.append(f"{run} in policy {policy}: refused, {answer.message}")
        return None, None
    seen.failures += [f"{run} in policy {policy}: {wrong}" for wrong in problems(nodes, request, answer)]
    told = answer.metrics
    seen.gaps.append(told.gap)
    if told.gap:
        seen.failures.append(f"{run} in policy {policy}: a gap of {told.gap} to the bound")
    return answer, PlanEffect(priced(nodes, answer).cost, told.stranded_gpus, told.pristine_domains, milliseconds)


def _verdict(ours: PlanEffect | None, peer: Cost, policy: Policy) -> str:
    if ours is None:
        return "worse"
    one, other = ours.cost.by(policy), peer.by(policy)
    return "better" if one < other else "equal" if one == other else "worse"
