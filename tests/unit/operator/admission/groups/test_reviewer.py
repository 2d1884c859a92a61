"""Every decision ends in time, equal ones are made once, and a crowd waits elsewhere.

While taskGroups.enabled is off, whoever writes a template, a pool or a group learns that GKM makes nothing of it.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event

import pytest
from gkm.api.task_group_settings import TaskGroups
from gkm.templates.rendering.process import RenderingProcess
from gkm.templates.values import RenderingUnavailable
from gkm_operator.admission.domains.cluster_view import ClusterView, ReviewView, ViewUnavailable
from gkm_operator.admission.domains.requests import DomainRequest, UserInfo
from gkm_operator.admission.domains.reviewer import Decision
from gkm_operator.admission.groups.objects import ClusterWideMetadata, ReviewedIdentity
from gkm_operator.admission.groups.reviewer import in_time
from gkm_operator.admission.review import ADMITTED, ReviewBusy, ReviewResponse
from gkm_operator.admission.singleflight import SingleFlight
from support.host.waiting import scaled, until
from support.kube.fake_api import FakeApi
from support.operator.group_templates import GroupTemplates, Json, group, pool, template

Reviewed = DomainRequest[ReviewedIdentity]

OFF = "taskGroups.enabled is off in the configuration of GKM"


class Scripted:
    """A decision that a test holds up."""

    def __init__(self, answer: Callable[[], ReviewResponse] = lambda: ADMITTED) -> None:
        self.answer = answer
        self.begun: list[str] = []
        self.go_on = Event()

    def decide(self, _view: object, request: Reviewed) -> ReviewResponse:
        self.begun.append(request.object.metadata.name)
        assert self.go_on.wait(scaled(30))
        return self.answer()


def about(name: str, user: str = "a") -> Reviewed:
    return DomainRequest("CREATE", "", ReviewedIdentity(ClusterWideMetadata(name)), user=UserInfo(user))


@dataclass
class Bounded:
    """A decision in time, and its flights."""

    flights: SingleFlight[ReviewResponse]
    decision: Decision[ReviewedIdentity]

    def decide(self, request: Reviewed) -> ReviewResponse:
        api = FakeApi()
        return self.decision(ReviewView(ClusterView(api, api, "gkm-system")), request)


def bounded(scripted: Scripted, seconds: float = 30.0, threads: int = 8, waiting: int = 8) -> Bounded:
    flights: SingleFlight[ReviewResponse] = SingleFlight(threads, seconds, waiting)
    return Bounded(flights, in_time(scripted.decide, flights))


def test_equal_requests_are_decided_once() -> None:
    scripted = Scripted()
    made = bounded(scripted, waiting=32)
    with ThreadPoolExecutor(8) as pool:
        same = [pool.submit(made.decide, about("x")) for _ in range(4)]
        other = pool.submit(made.decide, about("x", "b"))
        until(lambda: len(scripted.begun) == 2 and len(made.flights._callers._taken) == 2, "both to begin")
        until(lambda: made.flights._callers._free == 32 - 5, "all to wait")
        scripted.go_on.set()
        assert {each.result(scaled(30)) for each in [*same, other]} == {ADMITTED}
    assert scripted.begun == ["x", "x"]


def test_a_decision_that_hangs_ends_for_its_caller() -> None:
    scripted = Scripted()
    with pytest.raises(ViewUnavailable, match="the review takes more than 5 s"):
        bounded(scripted, seconds=0.05).decide(about("x"))
    scripted.go_on.set()


def test_a_crowd_is_sent_away() -> None:
    scripted = Scripted()
    made = bounded(scripted, waiting=2)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(made.decide, about("x"))
        until(lambda: scripted.begun, "the first to begin")
        with pytest.raises(ReviewBusy, match="at once"):
            made.decide(about("y"))
        scripted.go_on.set()
        assert first.result(scaled(30)) == ADMITTED


def test_no_renderer_is_no_fault_of_the_template() -> None:
    def fail() -> ReviewResponse:
        raise RenderingUnavailable("no rendering process was free")

    scripted = Scripted(fail)
    scripted.go_on.set()
    with pytest.raises(ViewUnavailable, match="no rendering process was free"):
        bounded(scripted).decide(about("x"))


@pytest.fixture
def off(renderer: RenderingProcess) -> GroupTemplates:
    made = GroupTemplates(renderer, TaskGroups(enabled=False))
    made.put(template("one"), pool("pool", "one"))
    return made


@pytest.mark.parametrize("made", [template("two"), pool("other", "one"), group()], ids=lambda made: str(made["kind"]))
def test_what_is_written_is_admitted_with_a_warning(off: GroupTemplates, made: Json) -> None:
    found = off.write(made)
    assert (found.allowed, OFF in found.warnings) == (True, True)


@pytest.mark.parametrize("made", [template("two"), pool("other", "one"), group()], ids=lambda made: str(made["kind"]))
def test_with_the_switch_there_is_no_warning(renderer: RenderingProcess, made: Json) -> None:
    on = GroupTemplates(renderer, TaskGroups(enabled=True))
    on.put(template("one"), pool("pool", "one"))
    assert (on.write(made).allowed, on.write(made).warnings) == (True, "")


def test_a_refusal_says_only_why(off: GroupTemplates) -> None:
    found = off.write(group(of="elsewhere"))
    assert "Pool 'elsewhere' does not exist" in found.message
    assert (found.allowed, found.warnings) == (False, "")


def test_a_deletion_is_admitted_without_a_warning(off: GroupTemplates) -> None:
    found = off.delete("free")
    assert (found.allowed, found.warnings) == (True, "")
