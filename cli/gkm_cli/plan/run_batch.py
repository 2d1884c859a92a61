"""Decide several runs on a snapshot: which of them fit together, and what one more run changes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from gkm.packing.batches.batch import WhatIf, plan_batch, what_if
from gkm.packing.batches.values import Admitted, Batch, InvalidBatchError, Queued, Rejected
from gkm.packing.errors import TooLargeError
from gkm.packing.fragmentation import Fragmentation, GroupKind, fragmentation
from gkm.packing.inventory import InvalidInventoryError, Inventory
from gkm.packing.refusals.fixes import fixes
from gkm.packing.self_check import InvalidPlanError
from gkm.packing.usable_nodes import UsableNodes, no_usable_node, version
from gkm.packing.values import Fix, Node, Plan, Refusal, Share
from gkm.topology.quarantine import Quarantined

from gkm_cli.output import CommandFailed
from gkm_cli.plan.options import PlanOptions
from gkm_cli.plan.runs import ParsedRun
from gkm_cli.plan.snapshot import SurveyedCluster


@dataclass(frozen=True, slots=True)
class RefusedRun:
    """A run that is not admitted. `fits_alone`: it would fit without the others."""

    run: ParsedRun
    refusal: Refusal
    fits_alone: bool
    fixes: tuple[Fix, ...] = ()


@dataclass(frozen=True, slots=True)
class BatchDecision:
    """The result for the runs; with `what_if`, for the batch with one more run.

    `usable` maps the name of a run to its usable nodes; `inventory` holds all of these nodes, and `fragmentation`
    describes the GPUs that the batch leaves.
    """

    runs: Mapping[str, ParsedRun]
    batch: Batch
    refused: tuple[RefusedRun, ...]
    usable: Mapping[str, UsableNodes]
    inventory: Inventory
    fragmentation: Fragmentation
    what_if: WhatIf | None = None
    extra: str = ""

    @property
    def admitted(self) -> tuple[tuple[ParsedRun, Plan], ...]:
        """Return the admitted runs, in the order of planning."""
        return tuple((self.runs[one.name], one.plan) for one in self.batch.admitted)

    @property
    def quarantined(self) -> tuple[Quarantined, ...]:
        """Return the quarantined nodes of all runs, each once."""
        return tuple(dict.fromkeys(entry for usable in self.usable.values() for entry in usable.quarantined))


def decide(
    runs: Sequence[ParsedRun],
    extra: ParsedRun | None,
    snapshot: SurveyedCluster,
    mix: Sequence[GroupKind],
    options: PlanOptions,
) -> BatchDecision:
    """Return which runs fit together, and what `extra`, one more run, changes.

    Raises:
        CommandFailed: a run and the nodes together are too large for an exact solution.
    """
    runs_by_name = {run.qualified_name: run for run in (*runs, *([extra] if extra else []))}
    usable = _usable(runs_by_name.values(), snapshot)
    nodes = _all_nodes(usable.values())
    queue = {name: _queued(run, usable[name]) for name, run in runs_by_name.items()}
    try:
        inventory = Inventory.from_nodes(nodes)
        inventory_version = version(nodes)
        changed = None
        if extra is None:
            batch = plan_batch((), list(queue.values()), inventory_version, seconds=options.seconds)
        else:
            others = [queued for name, queued in queue.items() if name != extra.qualified_name]
            changed = what_if((), others, queue[extra.qualified_name], inventory_version, seconds=options.seconds)
            batch = changed.after
        remaining = inventory.taking(_shares(batch.admitted))
        refused = tuple(
            _refused(runs_by_name[one.name], one, usable[one.name], batch, options) for one in batch.rejected
        )
    except (TooLargeError, InvalidInventoryError, InvalidBatchError, InvalidPlanError) as error:
        raise CommandFailed(f"the runs cannot be planned: {error}") from error
    name = extra.qualified_name if extra else ""
    return BatchDecision(runs_by_name, batch, refused, usable, inventory, fragmentation(remaining, mix), changed, name)


def _usable(runs: Iterable[ParsedRun], snapshot: SurveyedCluster) -> dict[str, UsableNodes]:
    """Return the usable nodes of each run. Equal requests share a result: there may be 100,000 nodes and 64 runs."""
    by_request: dict[bytes, UsableNodes] = {}
    found: dict[str, UsableNodes] = {}
    for run in runs:
        key = msgspec.json.encode(run.demand)
        if key not in by_request:
            by_request[key] = snapshot.usable(run.demand)
        found[run.qualified_name] = by_request[key]
    return found


def _all_nodes(usable: Iterable[UsableNodes]) -> list[Node]:
    """Return every node once, without scopes, which belong to each run."""
    nodes: dict[str, Node] = {}
    for each in {id(one): one for one in usable}.values():
        for node in each.nodes:
            nodes.setdefault(node.name, node)
    return [Node(node.name, node.place, node.total, node.free) for node in nodes.values()]


def _queued(run: ParsedRun, usable: UsableNodes) -> Queued:
    return Queued(run.qualified_name, run.request, usable.nodes, run.spec.priority)


def _shares(admitted: Iterable[Admitted]) -> Iterable[Share]:
    return (share for one in admitted for group in one.plan.groups for share in group.shares)


def _refused(run: ParsedRun, rejected: Rejected, usable: UsableNodes, batch: Batch, options: PlanOptions) -> RefusedRun:
    none = no_usable_node(usable)
    if none:
        return RefusedRun(run, none, fits_alone=False)
    found = rejected.refusal.fixes
    if options.explains and not found:
        names = {node.name for node in usable.nodes}
        taken = (share for share in _shares(batch.admitted) if share.node in names)
        found = fixes(Inventory.from_nodes(usable.nodes).taking(taken), run.request)
    return RefusedRun(run, rejected.refusal, rejected.fits_alone, found)
