"""Decide one run on a snapshot: its plan or refusal, the explanation, and the remaining GPUs."""

from collections.abc import Sequence
from dataclasses import dataclass

from gkm.api.topology_settings import MixGroup
from gkm.packing.explanation import Explanation, explain
from gkm.packing.fragmentation import Fragmentation, fragmentation
from gkm.packing.inventory import InvalidInventoryError, Inventory
from gkm.packing.plan import plan
from gkm.packing.replanning.replan import replan
from gkm.packing.self_check import InvalidPlanError
from gkm.packing.usable_nodes import UsableNodes, no_usable_node, with_holders
from gkm.packing.values import Fix, FormerPlan, Plan, Refusal, Replanned, TooLargeError

from gkm_cli.output import CommandFailed
from gkm_cli.plan.runs import ParsedRun
from gkm_cli.plan.snapshot import SurveyedCluster


@dataclass(frozen=True, slots=True)
class RunDecision:
    """The decision about a run. `fragmentation` describes the GPUs that remain; `replanned` exists if it had a plan."""

    run: ParsedRun
    usable: UsableNodes
    inventory: Inventory
    outcome: Plan | Refusal
    explanation: Explanation | None = None
    fragmentation: Fragmentation | None = None
    replanned: Replanned | None = None

    @property
    def fixes(self) -> tuple[Fix, ...]:
        """Return the changes that would make a refused run fit."""
        return self.explanation.fixes if self.explanation else ()

    @property
    def omitted_fixes(self) -> tuple[str, ...]:
        """Return why other changes are not among the fixes."""
        if self.explanation is None or not isinstance(self.outcome, Refusal):
            return ()
        return self.explanation.reasons[1:]  # the first reason is the refusal's


def decide(
    run: ParsedRun, snapshot: SurveyedCluster, mix: Sequence[MixGroup], previous: FormerPlan | None, *, explains: bool
) -> RunDecision:
    """Return the decision about a run; `previous` is its present plan, None without one.

    Raises:
        CommandFailed: the run and the nodes together are too large for an exact solution.
    """
    usable = snapshot.usable(run.demand)
    try:
        inventory = Inventory.from_nodes(usable.nodes)
        refused = no_usable_node(usable)
        if refused:
            return RunDecision(run, usable, inventory, refused)
        outcome, replanned = _outcome(run, usable, inventory, previous)
        if isinstance(outcome, Refusal):
            outcome = with_holders(outcome, usable)
        remaining = fragmentation(inventory, mix, outcome) if isinstance(outcome, Plan) else None
        explanation = explain(inventory, outcome, run.request) if explains else None
    except (TooLargeError, InvalidInventoryError, InvalidPlanError) as error:
        raise CommandFailed(f"run {run.qualified_name} cannot be planned: {error}") from error
    return RunDecision(run, usable, inventory, outcome, explanation, remaining, replanned)


def _outcome(
    run: ParsedRun, usable: UsableNodes, inventory: Inventory, previous: FormerPlan | None
) -> tuple[Plan | Refusal, Replanned | None]:
    if previous is None:
        return plan(inventory, run.request, usable.version), None
    replanned = replan(inventory, previous, run.request, usable.version)
    return (replanned.plan, replanned) if isinstance(replanned, Replanned) else (replanned, None)
