"""A run is planned, and the plan is made; a refusal that is known is not asked for again."""

import logging
import time
from collections.abc import Callable, Hashable

from gkm.api.topology_settings import Packing
from gkm.hoststate.logs import fields
from gkm.packing.refusals.fixes import fixes
from gkm.packing.values import Group, Refusal, Request

from gkm_operator import metrics
from gkm_operator.plans.answers import RETRY_SECONDS, Answer, Answers
from gkm_operator.plans.asking import again, asked
from gkm_operator.plans.book import Book
from gkm_operator.plans.cases import Case
from gkm_operator.plans.decisions import Act
from gkm_operator.plans.lost import staying
from gkm_operator.plans.planning import Fits, Occasion, draft, fit, log_groups, sizes
from gkm_operator.plans.room import Room, Stock
from gkm_operator.plans.snapshot import Snapshot
from gkm_operator.plans.status import Came
from gkm_operator.plans.wording import Reason, Unfit, unfit
from gkm_operator.plans.writer import NotLeading, Sent, Writer

_LOG = logging.getLogger(__name__)


class Attempts:
    """For the one thread that plans."""

    def __init__(
        self, writer: Writer, book: Book, settings: Packing, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.answers = Answers()
        self._writer = writer
        self._book = book
        self._settings = settings
        self._clock = clock

    def plan(self, case: Case, room: Room, snapshot: Snapshot) -> Came | None:
        """Plan a run; return what came of it, None where nobody knows and nothing more may be planned.

        Raises:
            NotLeading: nothing must be written any more.
        """
        known = self.answers.known(case.uid)
        question, world = _question(case), (snapshot.version, room.held.version)
        if known is not None and self._clock() >= known.until:
            self.answers.forget(case.uid)
            known = None
        if known is not None and (known.question, known.world) == (question, world):
            return self._refused(case, known)
        try:
            return self._planned(case, room, snapshot)
        except NotLeading:
            raise
        except Exception:  # noqa: BLE001 -- whatever the planner does with one run, the others are planned
            _LOG.exception("planner failed", extra=fields(run=str(case.run.key)))
            metrics.PLANS.labels("failed", Reason.PLANNER_FAILED).inc()
            wrong = Unfit(
                Reason.PLANNER_FAILED, "the planner failed, which is a mistake of GKM: see the log of gkm-controllers"
            )
            return self._refuse(case, Answer(question, "", world, wrong))

    def fix(self, case: Case, room: Room, snapshot: Snapshot) -> Came | None:
        """Look for changes that would make a run fit; return what came of it then, None where nothing did."""
        known = self.answers.known(case.uid)
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

    def _planned(self, case: Case, room: Room, snapshot: Snapshot) -> Came | None:
        question, world = _question(case), (snapshot.version, room.held.version)
        request = sizes(case.run, self._settings)
        stock = self._stock(case, room, snapshot)
        if isinstance(request, Unfit) or stock is None:
            wrong = request if isinstance(request, Unfit) else Unfit(Reason.INVALID_REQUEST, "two scopes have one name")
            metrics.PLANS.labels("refused", wrong.reason).inc()
            return self._refuse(case, Answer(question, "", world, wrong))
        known = self.answers.known(case.uid)
        if known is not None and (known.question, known.version) == (question, stock.version):
            known.world = world
            return self._refused(case, known)
        found = self._fit(case, stock, request, snapshot)
        if isinstance(found, Fits):
            return self._make(case, found, stock, room, snapshot)
        return self._refuse(case, Answer(question, stock.version, world, found))

    def _stock(self, case: Case, room: Room, snapshot: Snapshot) -> Stock | None:
        if case.demand is None:
            return None
        own = snapshot.taken.of(case.run.key)
        stays = () if not _former(case) or case.plan is None else staying(case.plan, own, case.found, case.ripe)
        return room.stock(case.run.key, case.demand, tuple(stays), alone=case.plan is not None)

    def _fit(self, case: Case, stock: Stock, request: Request, snapshot: Snapshot) -> Fits | Unfit:
        began = self._clock()
        found = fit(stock, request, _former(case))
        seconds = self._clock() - began
        if isinstance(found, Refusal):
            survey = snapshot.nodes.survey
            found = unfit(found, stock.usable, survey, snapshot.flavored, case.run.spec.flavor)
        metrics.PLAN_SECONDS.observe(seconds)
        if isinstance(found, Unfit):
            metrics.PLANS.labels("refused", found.reason).inc()
        return found

    def _make(self, case: Case, fits: Fits, stock: Stock, room: Room, snapshot: Snapshot) -> Came | None:
        run = case.run
        if case.plan is not None and _same(case, fits):
            # Nothing better is possible: another number on the same groups would be followed by the next.
            return Came(case.plan)
        number = 1 + self._book.last_number(run.key)
        occasion = Occasion(number, snapshot.now, case.decision.why, case.plan)
        made = draft(run, fits, stock, self._settings, occasion)
        world = (snapshot.version, room.held.version)
        if isinstance(made, Unfit):
            metrics.PLANS.labels("refused", made.reason).inc()
            return self._refuse(case, Answer(_question(case), stock.version, world, made))
        sent = self._writer.make(made)
        plan = made.counts
        if sent is Sent.REFUSED:
            wrong = Unfit(Reason.NOT_WRITTEN, f"the API server does not take plan {plan.name}: {self._writer.refusal}")
            metrics.PLANS.labels("failed", wrong.reason).inc()
            until = self._clock() + RETRY_SECONDS
            return self._refuse(case, Answer(_question(case), stock.version, world, wrong, until=until))
        room.took(run.key, plan.claims)
        if sent is not Sent.MADE:
            return None
        metrics.PLANS.labels("planned", "").inc()
        self.answers.forget(case.uid)
        said = fields(run=str(run.key), plan=plan.name, gpus=plan.spec.gpus, domains=plan.spec.metrics.domains)
        _LOG.info("planned", extra=said | fields(gap=plan.spec.metrics.gap, why=plan.spec.reason[:200]))
        log_groups(run, stock, fits.plan)
        return Came(plan)

    def _refuse(self, case: Case, answer: Answer) -> Came:
        known = self.answers.known(case.uid)
        if known is None or known.unfit != answer.unfit:
            said = fields(run=str(case.run.key), reason=answer.unfit.reason, why=answer.unfit.message[:400])
            _LOG.info("not planned", extra=said)
        self.answers.refused(case.uid, answer)
        return self._refused(case, answer)

    def _refused(self, case: Case, answer: Answer) -> Came:
        return Came(case.plan, case.over, answer.unfit, case.decision.why, answer.fixes)


def _same(case: Case, fits: Fits) -> bool:
    """Return whether the plan of a run would only be made again, with nothing that anybody asked for."""
    plan, run = case.plan, case.run
    if plan is None or case.decision.act is not Act.AGAIN:
        return False
    return (plan.groups, plan.asked, plan.again) == (fits.plan.groups, asked(run.spec), again(run))


def _former(case: Case) -> tuple[Group, ...]:
    """Return the groups that should stay."""
    return case.plan.groups if case.plan is not None and case.decision.act is Act.AGAIN else ()


def _question(case: Case) -> Hashable:
    plan = case.plan.name if case.plan else ""
    stays = tuple(sorted(case.found)) + tuple(sorted(case.ripe))
    return asked(case.run.spec), again(case.run), case.decision.act, plan, stays
