"""Find the plan of one run and build its PlacementPlan object, or a refusal. Pure but for logs."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
from gkm.api.meta import API_VERSION, timestamp
from gkm.api.topology_settings import Packing
from gkm.hoststate.logs import fields
from gkm.packing.conversion import plan_fragmentation, plan_spec
from gkm.packing.conversion import request as request_of
from gkm.packing.values import FormerPlan, Group, Plan, Refusal, Replanned, Request, TooLargeError
from gkm.topology.labels import flavor

from gkm_operator.plans.planning.refusals import PlanReason, Unfit
from gkm_operator.plans.state.free_capacity import FreeGpus
from gkm_operator.plans.state.objects import (
    REPLAN_ANNOTATION,
    REQUEST_ANNOTATION,
    PlanRecord,
    WatchedPlan,
    WatchedRun,
    name_of,
    parse_plan,
)

_LOG = logging.getLogger(__name__)

MAX_BYTES = 1 << 20
"""Limit of bytes of a plan as JSON; etcd stores 1.5 MB, and the API server adds managedFields."""
MAX_REASON = 1024


@dataclass(frozen=True, slots=True)
class FoundPlan:
    """A plan that the planner found, with sentences about the groups that it moves."""

    plan: Plan
    reasons: tuple[str, ...] = ()


def sizes(run: WatchedRun, settings: Packing) -> Request | Unfit:
    """Return the sizes that a Run requests, or why they are invalid (which the CRD's rules prevent)."""
    try:
        return request_of(run.spec, run.spec.policy or settings.policy)
    except ValueError as error:
        return Unfit(PlanReason.INVALID_REQUEST, str(error))


def find_plan(free: FreeGpus, request: Request, former: Sequence[Group] = ()) -> FoundPlan | Refusal | Unfit:
    """Return the best plan for a Run; with a `former` plan, the plan that moves the fewest of its groups."""
    # numpy is loaded with the first run: 30 MB that controllers without runs do not need.
    from gkm.packing.plan import plan  # noqa: PLC0415
    from gkm.packing.replanning.replan import replan  # noqa: PLC0415

    current = _current_placement(former)
    try:
        if current is None:
            found = plan(free.inventory, request, free.version)
            return FoundPlan(found) if isinstance(found, Plan) else found
        found_again = replan(free.inventory, current, request, free.version)
    except TooLargeError as error:
        return Unfit(PlanReason.TOO_LARGE, str(error))
    return FoundPlan(found_again.plan, found_again.reasons) if isinstance(found_again, Replanned) else found_again


def _current_placement(former: Sequence[Group]) -> FormerPlan | None:
    """Return the groups of a former plan, None if they are no valid placement."""
    try:
        return FormerPlan(tuple(former)) if former else None
    except ValueError as error:
        _LOG.warning("former plan of a Run invalid, Run planned without it", extra=fields(why=str(error)))
        return None


@dataclass(frozen=True, slots=True)
class PlanDraft:
    """A new PlacementPlan: the object to create, and the record that reserves its GPUs."""

    value: Mapping[str, Any]
    counts: PlanRecord


@dataclass(frozen=True, slots=True)
class PlanOccasion:
    """Number, time and reason of a new plan of a Run, and the `former` plan that it replaces.

    A plan that does not `renew` the time for which GPUs are held expires when the former plan does.
    """

    number: int
    now: datetime
    reason: str = ""
    former: PlanRecord | None = None
    renews: bool = True

    def expires(self, ttl: float) -> datetime:
        """Return when the plan stops reserving GPUs that no pod uses; `ttl` is in seconds."""
        inherited = None if self.renews or self.former is None else self.former.expires
        return inherited or self.now + timedelta(seconds=ttl)


def make_draft(
    run: WatchedRun, found: FoundPlan, free: FreeGpus, settings: Packing, occasion: PlanOccasion
) -> PlanDraft | Unfit:
    """Return the PlacementPlan object for a plan, or why it cannot be stored."""
    from gkm.packing.fragmentation import fragmentation  # noqa: PLC0415 - as above

    meta, reason = run.metadata, ". ".join(part for part in (occasion.reason, *found.reasons) if part)
    after = fragmentation(free.inventory, settings.mix, found.plan)
    spec = msgspec.structs.replace(
        plan_spec(found.plan, flavor(run.spec.flavor), plan_fragmentation(after)),
        run=meta.name,
        run_generation=meta.generation,
        number=occasion.number,
        supersedes=occasion.former.name if occasion.former else "",
        reason=reason if len(reason) <= MAX_REASON else f"{reason[: MAX_REASON - 1]}…",
        expires_at=timestamp(occasion.expires(settings.plan_ttl)),
        labels=run.spec.labels,
    )
    body = msgspec.json.encode(spec)
    if len(body) > MAX_BYTES:
        size = f"its plan takes {len(body):,} bytes, and {MAX_BYTES:,} are possible"
        return Unfit(PlanReason.TOO_LARGE, f"{size}: ask for fewer, larger groups, or for several runs")
    owner = {"apiVersion": API_VERSION, "kind": "Run", "name": meta.name, "uid": meta.uid}
    metadata = {
        "name": name_of(meta.name, occasion.number),
        "namespace": meta.namespace,
        "annotations": {
            REQUEST_ANNOTATION: run.request_hash,
            **({REPLAN_ANNOTATION: run.replan_annotation} if run.replan_annotation else {}),
        },
        "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": False}],
    }
    plain = {"metadata": metadata, "spec": msgspec.json.decode(body)}
    counts = parse_plan(msgspec.convert(plain, WatchedPlan))
    if counts is None:
        raise AssertionError(f"the plan {metadata['name']} cannot be read again")
    return PlanDraft({"apiVersion": API_VERSION, "kind": "PlacementPlan", **plain}, counts)


def log_groups(run: WatchedRun, free: FreeGpus, planned: Plan) -> None:
    """Log at level debug the domain of each group of a plan, and the GPUs that stay free there."""
    if not _LOG.isEnabledFor(logging.DEBUG):
        return
    residual: Counter[tuple[str, ...]] = Counter()
    for node in free.inventory.nodes:
        residual[node.place] += node.free
    for group in planned.groups:
        residual[group.place] -= group.gpus
        for spare in group.spares:
            residual[spare.place] -= spare.gpus
        where = fields(domain=str(group.place), residual_gpus=residual[group.place])
        _LOG.debug("group of a Run placed", extra=fields(run=str(run.key), group=group.index) | where)
