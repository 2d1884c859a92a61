"""A placement for CP-SAT, run by a Python that has OR-Tools and nothing of ours: JSON in, JSON out.

In: `domains` with [groups that fit, free GPUs, number of the block], `groups`, `order` of the parts of the cost, and
`seconds` for each of them. Out: `cost` with a number for each part, or null; `states`, a letter for each: O proven, F
the best found in time, I impossible, - nothing found; and `milliseconds` with the model's making.
"""

import json
import sys
import time
from typing import Any

from ortools.sat.python import cp_model  # type: ignore[import-not-found]

WORKERS = 2


def main() -> None:
    """Solve the problem on standard input."""
    problem = json.load(sys.stdin)
    began = time.perf_counter()
    cost, states = solve(problem)
    milliseconds = 1000 * (time.perf_counter() - began)
    json.dump({"cost": cost, "states": states, "milliseconds": milliseconds}, sys.stdout)


def solve(problem: dict[str, Any]) -> tuple[dict[str, int] | None, str]:
    """Return the least cost, its parts minimised one after another, and their states."""
    model = cp_model.CpModel()
    domains, groups = problem["domains"], problem["groups"]
    taken = [model.new_int_var(0, min(most, groups), "") for most, _, _ in domains]
    used = [model.new_bool_var("") for _ in domains]
    blocks = {block: model.new_bool_var("") for _, _, block in domains}
    model.add(sum(taken) == groups)
    for (most, _, block), count, is_used in zip(domains, taken, used, strict=True):
        model.add(count <= min(most, groups) * is_used)
        model.add_implication(is_used, blocks[block])
    free = [gpus for _, gpus, _ in domains]
    parts = {
        "domains": sum(used),
        "free": cp_model.LinearExpr.weighted_sum(used, free),
        "blocks": sum(blocks.values()),
    }
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = WORKERS
    solver.parameters.max_time_in_seconds = problem["seconds"]
    letters = {cp_model.OPTIMAL: "O", cp_model.FEASIBLE: "F", cp_model.INFEASIBLE: "I"}
    cost, states = {}, ""
    for name in problem["order"]:
        model.minimize(parts[name])
        states += letters.get(solver.solve(model), "-")
        if states[-1] in ("I", "-"):
            return None, states
        cost[name] = round(solver.objective_value)
        model.add(parts[name] <= cost[name])
        hint(model, solver)
    return cost, states


def hint(model: cp_model.CpModel, solver: cp_model.CpSolver) -> None:
    """Let the next part begin where this one ended."""
    found = [solver.value(model.get_int_var_from_proto_index(at)) for at in range(len(model.proto.variables))]
    model.clear_hints()
    for at, value in enumerate(found):
        model.add_hint(model.get_int_var_from_proto_index(at), value)


if __name__ == "__main__":
    main()
