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

from gkm_operator.plans.asking import again, asked
from gkm_operator.plans.book import Made, made, name_of
from gkm_operator.plans.objects import AGAIN, ASKED, WatchedPlan, WatchedRun
from gkm_operator.plans.room import Stock
from gkm_operator.plans.wording import Reason, Unfit

_LOG = logging.getLogger(__name__)

MAX_BYTES = 1 << 20
"""Of a plan as JSON. etcd takes 1.5 MB, and the API server adds to it who wrote which field."""
MAX_REASON = 1024


@dataclass(frozen=True, slots=True)
class Fits:
    """A plan, and what it does to the groups of the former one, in sentences."""

    plan: Plan
    reasons: tuple[str, ...] = ()


def sizes(run: WatchedRun, settings: Packing) -> Request | Unfit:
    """Return what a run asks for in numbers, or what is wrong with them; the rules of the CRD catch it before."""
    try:
        return request_of(run.spec, settings.policy)
    except ValueError as error:
        return Unfit(Reason.INVALID_REQUEST, str(error))


def fit(stock: Stock, request: Request, former: Sequence[Group] = ()) -> Fits | Refusal | Unfit:
    """Return the best plan for a run; with the groups of its `former` plan the one that moves the fewest of them."""
    standing = _standing(former)
    try:
        if standing is None:
            found = plan(stock.inventory, request, stock.version)
            return Fits(found) if isinstance(found, Plan) else found
        again_found = replan(stock.inventory, standing, request, stock.version)
    except TooLargeError as error:
        return Unfit(Reason.TOO_LARGE, str(error))
    return Fits(again_found.plan, again_found.reasons) if isinstance(again_found, Replanned) else again_found


def _standing(former: Sequence[Group]) -> Standing | None:
    """Return the groups of a former plan, None where nothing of it can stand."""
    try:
        return Standing(tuple(former)) if former else None
    except ValueError as error:
        _LOG.warning("former plan cannot stand", extra=fields(why=str(error)))
        return None


@dataclass(frozen=True, slots=True)
class Draft:
    """A plan as it is sent, and as it counts."""

    value: Mapping[str, Any]
    counts: Made


@dataclass(frozen=True, slots=True)
class Occasion:
    """Why a plan is made now: `former` is the one that it takes the place of."""

    number: int
    now: datetime
    why: str = ""
    former: Made | None = None


def draft(run: WatchedRun, fits: Fits, stock: Stock, settings: Packing, occasion: Occasion) -> Draft | Unfit:
    """Return the PlacementPlan of a run."""
    meta, why = run.metadata, ". ".join(part for part in (occasion.why, *fits.reasons) if part)
    spec = msgspec.structs.replace(
        written(fits.plan, flavor(run.spec.flavor), _left(stock, fits.plan, settings)),
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
        return Unfit(Reason.TOO_LARGE, f"{needs}: ask for fewer, larger groups, or for several runs")
    owner = {"apiVersion": API_VERSION, "kind": "Run", "name": meta.name, "uid": meta.uid}
    metadata = {
        "name": name_of(meta.name, occasion.number),
        "namespace": meta.namespace,
        "annotations": {ASKED: asked(run.spec), **({AGAIN: again(run)} if again(run) else {})},
        "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": False}],
    }
    plain = {"metadata": metadata, "spec": msgspec.json.decode(body)}
    counts = made(msgspec.convert(plain, WatchedPlan))
    if counts is None:
        raise AssertionError(f"the plan {metadata['name']} cannot be read again")
    return Draft({"apiVersion": API_VERSION, "kind": "PlacementPlan", **plain}, counts)


def _left(stock: Stock, planned: Plan, settings: Packing) -> PlanFragmentation:
    """Return what a plan leaves behind."""
    mix = kinds(settings.mix)
    left = fragmentation(stock.inventory, mix, planned)
    return PlanFragmentation(left.expected_unusable_gpus, left.largest_group)


def log_groups(run: WatchedRun, stock: Stock, planned: Plan) -> None:
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
