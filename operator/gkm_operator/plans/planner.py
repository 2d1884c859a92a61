"""A run is planned, and the plan is made; a refusal that is known is not asked for again."""

import logging
import time
from collections.abc import Callable, Hashable

from gkm.api.topology_settings import Packing
from gkm.hoststate.logs import fields
from gkm.packing.refusals.fixes import fixes
from gkm.packing.values import Group, Refusal, Request

from gkm_operator import metrics
from gkm_operator.plans.planning.assessment import RunAssessment
from gkm_operator.plans.planning.decisions import RunAction
from gkm_operator.plans.planning.draft import FoundPlan, PlanOccasion, find_plan, log_groups, make_draft, sizes
from gkm_operator.plans.planning.refusal_cache import RETRY_SECONDS, CachedRefusal, RefusalCache
from gkm_operator.plans.planning.refusals import PlanReason, Unfit, unfit
from gkm_operator.plans.state.free_capacity import FreeCapacity, FreeGpus
from gkm_operator.plans.state.node_loss import retained_nodes
from gkm_operator.plans.state.plan_index import PlanIndex
from gkm_operator.plans.state.request_hash import replan_annotation, request_hash
from gkm_operator.plans.state.snapshot import ClusterSnapshot
from gkm_operator.plans.write.status import PlanningResult
from gkm_operator.plans.write.writer import NotLeading, PlanWriter, SendResult

_LOG = logging.getLogger(__name__)


class Planner:
    """For the one thread that plans."""

    def __init__(
        self, writer: PlanWriter, book: PlanIndex, settings: Packing, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.answers = RefusalCache()
        self._writer = writer
        self._book = book
        self._settings = settings
        self._clock = clock

    def plan(self, case: RunAssessment, room: FreeCapacity, snapshot: ClusterSnapshot) -> PlanningResult | None:
        """Plan a run; return what came of it, None where nobody knows and nothing more may be planned.

        Raises:
            NotLeading: nothing must be written any more.
        """
        known = self.answers.get(case.uid)
        question, world = _question(case), (snapshot.version, room.held.version)
        if known is not None and self._clock() >= known.until:
            self.answers.remove(case.uid)
            known = None
        if known is not None and (known.question, known.world) == (question, world):
            return self._refused(case, known)
        try:
            return self._planned(case, room, snapshot)
        except NotLeading:
            raise
        except Exception:  # noqa: BLE001 -- whatever the planner does with one run, the others are planned
            _LOG.exception("planner failed", extra=fields(run=str(case.run.key)))
            metrics.PLANS.labels("failed", PlanReason.PLANNER_FAILED).inc()
            wrong = Unfit(
                PlanReason.PLANNER_FAILED,
                "the planner failed, which is a mistake of GKM: see the log of gkm-controllers",
            )
            return self._refuse(case, CachedRefusal(question, "", world, wrong))

    def fix(self, case: RunAssessment, room: FreeCapacity, snapshot: ClusterSnapshot) -> PlanningResult | None:
        """Look for changes that would make a run fit; return what came of it then, None where nothing did."""
        known = self.answers.get(case.uid)
        request = sizes(case.run, self._settings)
        if known is None or isinstance(request, Unfit) or case.demand is None:
            return None
        stock = self._stock(case, room, snapshot)
        known.fixed, known.fixed_at = known.version, self._clock()
        if stock is None or stock.version != known.version:
            return None
        try:
            known.fixes = fixes(stock.inventory, request)
        except Exception:  # noqa: BLE001 -- as above; without fixes the refusal says enough
            _LOG.exception("no fixes found", extra=fields(run=str(case.run.key)))
            known.fixes = ()
        return self._refused(case, known)

    def _planned(self, case: RunAssessment, room: FreeCapacity, snapshot: ClusterSnapshot) -> PlanningResult | None:
        question, world = _question(case), (snapshot.version, room.held.version)
        request = sizes(case.run, self._settings)
        stock = self._stock(case, room, snapshot)
        if isinstance(request, Unfit) or stock is None:
            wrong = (
                request if isinstance(request, Unfit) else Unfit(PlanReason.INVALID_REQUEST, "two scopes have one name")
            )
            metrics.PLANS.labels("refused", wrong.reason).inc()
            return self._refuse(case, CachedRefusal(question, "", world, wrong))
        known = self.answers.get(case.uid)
        if known is not None and (known.question, known.version) == (question, stock.version):
            known.world = world
            return self._refused(case, known)
        found = self._fit(case, stock, request, snapshot)
        if isinstance(found, FoundPlan):
            return self._make(case, found, stock, room, snapshot)
        return self._refuse(case, CachedRefusal(question, stock.version, world, found))

    def _stock(self, case: RunAssessment, room: FreeCapacity, snapshot: ClusterSnapshot) -> FreeGpus | None:
        if case.demand is None:
            return None
        own = snapshot.taken.of(case.run.key)
        stays = (
            () if not _former(case) or case.plan is None else retained_nodes(case.plan, own, case.found, case.confirmed)
        )
        return room.free_for(case.run.key, case.demand, tuple(stays), alone=case.plan is not None)

    def _fit(
        self, case: RunAssessment, stock: FreeGpus, request: Request, snapshot: ClusterSnapshot
    ) -> FoundPlan | Unfit:
        began = self._clock()
        found = find_plan(stock, request, _former(case))
        seconds = self._clock() - began
        if isinstance(found, Refusal):
            survey = snapshot.nodes.survey
            found = unfit(found, stock.usable, survey, snapshot.flavored, case.run.spec.flavor)
        metrics.PLAN_SECONDS.observe(seconds)
        if isinstance(found, Unfit):
            metrics.PLANS.labels("refused", found.reason).inc()
        return found

    def _make(
        self, case: RunAssessment, fits: FoundPlan, stock: FreeGpus, room: FreeCapacity, snapshot: ClusterSnapshot
    ) -> PlanningResult | None:
        run = case.run
        if case.plan is not None and is_redundant(case, fits):
            # Nothing better is possible: another number on the same groups would be followed by the next.
            return PlanningResult(case.plan)
        number = 1 + self._book.last_number(run.key)
        occasion = PlanOccasion(number, snapshot.now, case.decision.why, case.plan)
        made = make_draft(run, fits, stock, self._settings, occasion)
        world = (snapshot.version, room.held.version)
        if isinstance(made, Unfit):
            metrics.PLANS.labels("refused", made.reason).inc()
            return self._refuse(case, CachedRefusal(_question(case), stock.version, world, made))
        sent = self._writer.create(made)
        plan = made.counts
        if sent is SendResult.REFUSED:
            wrong = Unfit(
                PlanReason.NOT_WRITTEN, f"the API server does not take plan {plan.name}: {self._writer.refusal}"
            )
            metrics.PLANS.labels("failed", wrong.reason).inc()
            until = self._clock() + RETRY_SECONDS
            return self._refuse(case, CachedRefusal(_question(case), stock.version, world, wrong, until=until))
        room.record_plan(run.key, plan.claims)
        if sent is not SendResult.MADE:
            return None
        metrics.PLANS.labels("planned", "").inc()
        self.answers.remove(case.uid)
        said = fields(run=str(run.key), plan=plan.name, gpus=plan.spec.gpus, domains=plan.spec.metrics.domains)
        _LOG.info("planned", extra=said | fields(gap=plan.spec.metrics.gap, why=plan.spec.reason[:200]))
        log_groups(run, stock, fits.plan)
        return PlanningResult(plan)

    def _refuse(self, case: RunAssessment, answer: CachedRefusal) -> PlanningResult:
        known = self.answers.get(case.uid)
        if known is None or known.unfit != answer.unfit:
            said = fields(run=str(case.run.key), reason=answer.unfit.reason, why=answer.unfit.message[:400])
            _LOG.info("not planned", extra=said)
        self.answers.put(case.uid, answer)
        return self._refused(case, answer)

    def _refused(self, case: RunAssessment, answer: CachedRefusal) -> PlanningResult:
        return PlanningResult(case.plan, case.over, answer.unfit, case.decision.why, answer.fixes)


def is_redundant(case: RunAssessment, fits: FoundPlan) -> bool:
    """Return whether the plan of a run would only be made again, with nothing that anybody asked for."""
    plan, run = case.plan, case.run
    if plan is None or case.decision.act is not RunAction.AGAIN:
        return False
    return (plan.groups, plan.asked, plan.again) == (fits.plan.groups, request_hash(run.spec), replan_annotation(run))


def _former(case: RunAssessment) -> tuple[Group, ...]:
    """Return the groups that should stay."""
    return case.plan.groups if case.plan is not None and case.decision.act is RunAction.AGAIN else ()


def _question(case: RunAssessment) -> Hashable:
    plan = case.plan.name if case.plan else ""
    stays = tuple(sorted(case.found)) + tuple(sorted(case.confirmed))
    return request_hash(case.run.spec), replan_annotation(case.run), case.decision.act, plan, stays
