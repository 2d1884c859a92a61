"""One run, planned: the plan as it is sent, or why there is none. Pure, but for what it logs."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
from gkm.api.meta import API_VERSION, timestamp
from gkm.api.plans import PlanFragmentation
from gkm.api.topology_settings import Packing
from gkm.hoststate.logs import fields
from gkm.packing.asked import kinds
from gkm.packing.asked import request as request_of
from gkm.packing.domains.cover import TooLargeError
from gkm.packing.fragmentation import fragmentation
from gkm.packing.plan import plan
from gkm.packing.replanning.replan import replan
from gkm.packing.replanning.values import Replanned, Standing
from gkm.packing.values import Group, Plan, Refusal, Request
from gkm.packing.written import written
from gkm.topology.labels import flavor

from gkm_operator.plans.planning.refusals import PlanReason, Unfit
from gkm_operator.plans.state.free_capacity import FreeGpus
from gkm_operator.plans.state.objects import AGAIN, ASKED, WatchedPlan, WatchedRun
from gkm_operator.plans.state.plan_index import PlanRecord, name_of, parse_plan
from gkm_operator.plans.state.request_hash import replan_annotation, request_hash

_LOG = logging.getLogger(__name__)

MAX_BYTES = 1 << 20
"""Of a plan as JSON. etcd takes 1.5 MB, and the API server adds to it who wrote which field."""
MAX_REASON = 1024


@dataclass(frozen=True, slots=True)
class FoundPlan:
    """A plan, and what it does to the groups of the former one, in sentences."""

    plan: Plan
    reasons: tuple[str, ...] = ()


def sizes(run: WatchedRun, settings: Packing) -> Request | Unfit:
    """Return what a run asks for in numbers, or what is wrong with them; the rules of the CRD catch it before."""
    try:
        return request_of(run.spec, settings.policy)
    except ValueError as error:
        return Unfit(PlanReason.INVALID_REQUEST, str(error))


def find_plan(stock: FreeGpus, request: Request, former: Sequence[Group] = ()) -> FoundPlan | Refusal | Unfit:
    """Return the best plan for a run; with the groups of its `former` plan the one that moves the fewest of them."""
    standing = _current_placement(former)
    try:
        if standing is None:
            found = plan(stock.inventory, request, stock.version)
            return FoundPlan(found) if isinstance(found, Plan) else found
        again_found = replan(stock.inventory, standing, request, stock.version)
    except TooLargeError as error:
        return Unfit(PlanReason.TOO_LARGE, str(error))
    return FoundPlan(again_found.plan, again_found.reasons) if isinstance(again_found, Replanned) else again_found


def _current_placement(former: Sequence[Group]) -> Standing | None:
    """Return the groups of a former plan, None where nothing of it can stand."""
    try:
        return Standing(tuple(former)) if former else None
    except ValueError as error:
        _LOG.warning("former plan cannot stand", extra=fields(why=str(error)))
        return None


@dataclass(frozen=True, slots=True)
class PlanDraft:
    """A plan as it is sent, and as it counts."""

    value: Mapping[str, Any]
    counts: PlanRecord


@dataclass(frozen=True, slots=True)
class PlanOccasion:
    """Why a plan is made now: `former` is the one that it takes the place of."""

    number: int
    now: datetime
    why: str = ""
    former: PlanRecord | None = None


def make_draft(
    run: WatchedRun, fits: FoundPlan, stock: FreeGpus, settings: Packing, occasion: PlanOccasion
) -> PlanDraft | Unfit:
    """Return the PlacementPlan of a run."""
    meta, why = run.metadata, ". ".join(part for part in (occasion.why, *fits.reasons) if part)
    spec = msgspec.structs.replace(
        written(fits.plan, flavor(run.spec.flavor), _fragmentation_after(stock, fits.plan, settings)),
        run=meta.name,
        run_generation=meta.generation,
        number=occasion.number,
        supersedes=occasion.former.name if occasion.former else "",
        reason=why if len(why) <= MAX_REASON else f"{why[: MAX_REASON - 1]}…",
        expires_at=timestamp(occasion.now + timedelta(seconds=settings.plan_ttl)),
        labels=run.spec.labels,
    )
    body = msgspec.json.encode(spec)
    if len(body) > MAX_BYTES:
        needs = f"its plan takes {len(body):,} bytes, and {MAX_BYTES:,} are possible"
        return Unfit(PlanReason.TOO_LARGE, f"{needs}: ask for fewer, larger groups, or for several runs")
    owner = {"apiVersion": API_VERSION, "kind": "Run", "name": meta.name, "uid": meta.uid}
    metadata = {
        "name": name_of(meta.name, occasion.number),
        "namespace": meta.namespace,
        "annotations": {
            ASKED: request_hash(run.spec),
            **({AGAIN: replan_annotation(run)} if replan_annotation(run) else {}),
        },
        "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": False}],
    }
    plain = {"metadata": metadata, "spec": msgspec.json.decode(body)}
    counts = parse_plan(msgspec.convert(plain, WatchedPlan))
    if counts is None:
        raise AssertionError(f"the plan {metadata['name']} cannot be read again")
    return PlanDraft({"apiVersion": API_VERSION, "kind": "PlacementPlan", **plain}, counts)


def _fragmentation_after(stock: FreeGpus, planned: Plan, settings: Packing) -> PlanFragmentation:
    """Return what a plan leaves behind."""
    mix = kinds(settings.mix)
    left = fragmentation(stock.inventory, mix, planned)
    return PlanFragmentation(left.expected_unusable_gpus, left.largest_group)


def log_groups(run: WatchedRun, stock: FreeGpus, planned: Plan) -> None:
    """Say in debug logs where each group went, and how many GPUs its domain has left."""
    if not _LOG.isEnabledFor(logging.DEBUG):
        return
    inventory = stock.inventory
    left: dict[tuple[str, ...], int] = {}
    for node in inventory.nodes:
        left[node.place] = left.get(node.place, 0) + node.free
    for group in planned.groups:
        left[group.place] -= group.gpus
        for spare in group.spares:
            left[spare.place] -= spare.gpus
        said = fields(run=str(run.key), group=group.index, domain=str(group.place), residual_gpus=left[group.place])
        _LOG.debug("group placed", extra=said)
