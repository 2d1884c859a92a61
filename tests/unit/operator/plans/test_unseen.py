"""Plans that no watch shows do not stop the planning of other runs."""

from collections.abc import Iterator

import pytest
from gkm.kube.errors import ApiError
from gkm.kube.events import Recorder
from gkm.kube.resources import Json, Resource
from gkm_operator.plans.planning.draft import PlanDraft
from gkm_operator.plans.state.objects import PlanIndex
from gkm_operator.plans.write.writer import PlanWriter, SendResult
from support.kube.fake_api import FakeApi
from support.operator.plans import NAMESPACE, RAW_PLANS, PlansSite
from support.operator.plans_made import a_draft, a_run, a_stock, fleet


@pytest.fixture
def site() -> Iterator[PlansSite]:
    made = PlansSite()
    yield made
    made.controller.close()


def a_writer(api: FakeApi, book: PlanIndex) -> PlanWriter:
    return PlanWriter(api, book, Recorder(api, "test", "test"))


def a_draft_of_a_plan() -> PlanDraft:
    return a_draft(a_run(), a_stock(*fleet()))


QUOTA = 'Operation cannot be fulfilled on resourcequotas "q": the object has been modified'
WEBHOOK = 'Internal error occurred: failed calling webhook "v.example.com": context deadline exceeded'


@pytest.mark.parametrize(
    "refusal",
    [
        ApiError(409, "Conflict", QUOTA),
        ApiError(500, "InternalError", WEBHOOK),
        ApiError(503, "ServiceUnavailable", 'admission webhook "v.example.com" denied the request: not ready'),
        ApiError(429, "TooManyRequests", "the server has asked for the client to try again later"),
    ],
    ids=lambda error: str(error.reason),
)
def test_a_namespace_that_refuses_plans_does_not_stop_other_namespaces(
    site: PlansSite, monkeypatch: pytest.MonkeyPatch, refusal: ApiError
) -> None:
    create = site.api.create

    def refusing(resource: Resource[Json], value: Json, **more: str) -> Json:
        if resource.plural == RAW_PLANS.plural and value["metadata"]["name"] == "contended-1":
            raise refusal
        return create(resource, value, **more)

    monkeypatch.setattr(site.api, "create", refusing)
    site.rack("d1", 4)
    site.ask("contended", 16, priority=9)
    site.ask("other", 16)
    site.controller.work()
    site.until("other", "Planned", "other-1")
    site.until("contended", "NotWritten")


def test_the_wait_for_another_leaders_plan_ends_when_it_is_deleted_unseen() -> None:
    api, book, draft = FakeApi(), PlanIndex(), a_draft_of_a_plan()
    writer = a_writer(api, book)
    api.create(RAW_PLANS, dict(draft.value))
    assert writer.create(draft) is SendResult.EXISTS
    assert not writer.settle()
    api.delete(RAW_PLANS, "r-1", NAMESPACE)
    assert writer.settle()
    assert book.plans() == {}


def test_no_run_is_planned_while_the_existence_of_a_plan_is_unknown() -> None:
    api, book, draft = FakeApi(), PlanIndex(), a_draft_of_a_plan()
    writer = a_writer(api, book)
    api.create(RAW_PLANS, dict(draft.value))
    writer.create(draft)
    api.delete(RAW_PLANS, "r-1", NAMESPACE)
    api.fault = lambda verb, _: ApiError(503, "", "away") if verb == "list" else None
    assert not writer.settle()


def test_a_plan_that_was_deleted_unseen_reserves_nothing() -> None:
    api, book, draft = FakeApi(), PlanIndex(), a_draft_of_a_plan()
    writer = a_writer(api, book)
    assert writer.create(draft) is SendResult.CREATED
    assert writer.settle()
    assert list(book.plans()) == [draft.counts.run]
    api.delete(RAW_PLANS, "r-1", NAMESPACE)
    assert writer.settle()
    assert book.plans() == {}
