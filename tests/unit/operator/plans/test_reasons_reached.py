"""A user or the cluster can cause every reason of the condition Planned."""

from collections.abc import Callable, Iterator

import pytest
from gkm.kube.errors import ApiError
from gkm.kube.resources import Json, Resource
from gkm_operator import metrics
from gkm_operator.plans import controller, planner
from gkm_operator.plans.planning import draft as planning
from support.host.waiting import until
from support.operator.plans import NAMESPACE, RAW_PLANS, PlansSite, gpu_node


@pytest.fixture
def site() -> Iterator[PlansSite]:
    made = PlansSite()
    made.rack("d1", 2)
    yield made
    made.controller.close()


def fits(site: PlansSite) -> None:
    site.ask("r", 16)


def is_larger_than_what_is_free(site: PlansSite) -> None:
    site.ask("r", 32)


def names_a_scope_that_gives_less(site: PlansSite) -> None:
    site.ask("r", 16, scopes=[{"name": "team", "maxGPUs": 8}])


def finds_only_nodes_that_contradict_each_other(site: PlansSite) -> None:
    site.nodes(gpu_node("a", "d2", block="b1", gpu__flavor="b200"), gpu_node("b", "d2", block="b2", gpu__flavor="b200"))
    site.ask("r", 8, flavor="b200")


def has_sizes_that_do_not_divide(site: PlansSite) -> None:
    site.ask("r", 12)


def expired(site: PlansSite) -> None:
    site.ask("r", 16)
    until(lambda: site.planned("r")[1] == "Planned", "it has a plan")
    site.expire("r-1")


@pytest.mark.parametrize(
    ("which", "status", "reason"),
    [
        (fits, "True", "Planned"),
        (is_larger_than_what_is_free, "False", "DoesNotFit"),
        (names_a_scope_that_gives_less, "False", "OutsideScopes"),
        (finds_only_nodes_that_contradict_each_other, "False", "LabelsInvalid"),
        (has_sizes_that_do_not_divide, "False", "InvalidRequest"),
        (expired, "False", "PlanExpired"),
    ],
)
def test_each_combination_of_request_and_nodes_has_its_reason(
    site: PlansSite, which: Callable[[PlansSite], None], status: str, reason: str
) -> None:
    site.controller.work()
    which(site)
    until(lambda: site.planned("r")[:2] == (status, reason), reason)
    assert site.planned("r")[2]


def test_a_plan_that_no_object_can_hold_is_too_large(site: PlansSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "MAX_BYTES", 500)
    site.controller.work()
    site.ask("r", 16)
    until(lambda: site.planned("r")[1] != "", "it has an answer")
    assert site.planned("r")[:2] == ("False", "TooLarge")


def test_an_exception_of_the_planner_is_reported_as_planner_failed(
    site: PlansSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr(planner, "find_plan", failing)
    site.controller.work()
    site.ask("r", 16)
    until(lambda: site.planned("r")[1] != "", "it has an answer")
    assert site.planned("r")[:2] == ("False", "PlannerFailed")


def test_a_plan_that_the_api_server_refuses_is_reported_as_not_written(
    site: PlansSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = site.api.create

    def refusing(resource: Resource[Json], value: Json, **more: str) -> Json:
        if resource.plural == RAW_PLANS.plural:
            raise ApiError(403, "Forbidden", f"exceeded quota in {NAMESPACE}")
        return create(resource, value, **more)

    monkeypatch.setattr(site.api, "create", refusing)
    site.controller.work()
    site.ask("r", 16)
    until(lambda: site.planned("r")[1] != "", "it has an answer")
    assert site.planned("r")[:2] == ("False", "NotWritten")
    assert "exceeded quota in team" in site.planned("r")[2]


def test_a_refused_plan_is_sent_again_and_counts_when_accepted(
    site: PlansSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(controller, "IDLE_SECONDS", 0.01)
    create = site.api.create
    refused: list[Json] = []
    made, failed = counted("planned", ""), counted("failed", "NotWritten")

    def refusing_once(resource: Resource[Json], value: Json, **more: str) -> Json:
        if resource.plural == RAW_PLANS.plural and not refused:
            refused.append(value)
            raise ApiError(403, "Forbidden", "a policy that somebody takes back")
        return create(resource, value, **more)

    monkeypatch.setattr(site.api, "create", refusing_once)
    site.controller.work()
    site.ask("r", 16)
    site.until("r", "Planned", "r-1")
    assert (counted("planned", "") - made, counted("failed", "NotWritten") - failed) == (1, 1)


def counted(result: str, reason: str) -> float:
    """What gkm_plan_total says."""
    return metrics.REGISTRY.get_sample_value("gkm_plan_total", {"result": result, "reason": reason}) or 0.0
