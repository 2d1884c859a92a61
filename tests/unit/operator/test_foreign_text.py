"""Foreign text in what the operator writes: conditions, fixes, events and answers of admission are printable lines."""

import json
from datetime import UTC, datetime

import pytest
from gkm.api.caches import CacheSpec, CacheStatus, GKMCache
from gkm.api.errors import GKMError, Reason
from gkm.api.meta import ObjectMeta
from gkm.api.runs import RunStatus
from gkm.kube.events import EventBody, Recorder, Regarding
from gkm.packing.values import Fix, FixKind
from gkm_operator.admission.review import ReviewResponse, encode
from gkm_operator.caches.outcome import error_outcome
from gkm_operator.caches.status import desired_status
from gkm_operator.caches.totals import CacheSummary
from gkm_operator.plans.planning.assessment import PlanningResult
from gkm_operator.plans.planning.refusals import Unfit
from gkm_operator.plans.write.status import desired_status as wanted_of_run
from support.kube.fake_api import FakeApi
from support.operator.plans_made import a_run

COMMANDS = "a\x1b[2J\x9b31m\x85\u202eb"
SHOWN = r"a\x1b[2J\x9b31m\x85\u202eb"
NOW = "2026-03-01T12:00:00Z"
IMAGE = "registry.test/team/cache:1"


def test_conditions_of_a_cache() -> None:
    cache = GKMCache(ObjectMeta(name="x", namespace="a", uid="u", generation=1), CacheSpec(IMAGE), CacheStatus())
    outcome = error_outcome(IMAGE, None, GKMError(Reason.NOT_ALLOWED, COMMANDS))
    nodes = CacheSummary(total=1, failed=1, failures={COMMANDS: ["n"]})
    status = desired_status(cache, outcome, nodes, NOW)
    assert status is not None
    messages = {condition.type: condition.message for condition in status.conditions}
    assert messages["Verified"] == SHOWN
    assert SHOWN in messages["Error"]
    assert all(map(str.isprintable, messages.values()))
    assert status.failed_node_conditions == {SHOWN: ["n"]}


def test_the_condition_and_the_fixes_of_a_run() -> None:
    fix = Fix(FixKind.SMALLER, COMMANDS, {"gpus": 8})
    result = PlanningResult(unfit=Unfit("DoesNotFit", COMMANDS), fixes=(fix,))
    status = wanted_of_run(a_run(), RunStatus(), result, NOW, None)
    assert [condition.message for condition in status.conditions] == [SHOWN]
    assert [fix.message for fix in status.fixes] == [SHOWN]


@pytest.mark.parametrize("note", [COMMANDS, "half a pair: \ud800"])
def test_an_event(note: str) -> None:
    told = EventBody("Warning", "Refused", "Verify", note)
    regarding = Regarding("gkm.io/v1alpha1", "GKMCache", "x", "a", "u")
    made = Recorder(FakeApi(), "c", "i").event(regarding, told, "1", datetime.now(UTC))
    assert made["note"] == note.encode("unicode_escape").decode()
    assert made["note"].isprintable()


def test_a_response_of_admission() -> None:
    refused = json.loads(encode("u", ReviewResponse(allowed=False, message=COMMANDS)))["response"]
    assert refused["status"]["message"] == SHOWN
    warned = json.loads(encode("u", ReviewResponse(allowed=True, warnings=(COMMANDS,))))["response"]
    assert all(map(str.isprintable, warned["warnings"]))
