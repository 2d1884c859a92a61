"""The controllers in an API server where something is not installed, is another's, or that is away when they start."""

from itertools import count
from threading import Event
from typing import Any

import pytest
from gkm.api import crds
from gkm.hoststate.pacing import Backoff
from gkm.kube.errors import ApiError
from gkm.kube.resources import DEFINITIONS
from gkm_operator.preconditions import check
from gkm_operator.preconditions.check import KindsMissing, RightsMissing
from support.kube.fake_api import FakeApi

LEASE = ("gkm-system", "gkm-controllers")
CONTROLLERS = "system:serviceaccount:gkm-system:gkm-controllers"
Json = dict[str, Any]


def whole_api() -> FakeApi:
    """An API server in memory with our kinds in it."""
    api = FakeApi()
    for definition in crds.definitions().values():
        api.create(DEFINITIONS, definition)
    return api


def test_a_complete_installation_passes() -> None:
    assert check.wait(whole_api(), LEASE, Event())


@pytest.mark.parametrize("verb", ["get", "list"])
def test_kinds_that_are_missing_are_named(verb: str) -> None:
    api = whole_api()
    if verb == "get":
        api.delete(DEFINITIONS, "gkmcachenodes.gkm.io")
    else:
        api.fault = lambda called, plural: (
            ApiError(404, "NotFound", "") if (called, plural) == ("list", "gkmcachenodes") else None
        )
    with pytest.raises(KindsMissing, match="no gkmcachenodes: apply crds/"):
        check.wait(api, LEASE, Event())


@pytest.mark.parametrize(
    "plural", ["customresourcedefinitions", "clustergkmcaches", "leases", "nodes", "pods", "daemonsets"]
)
def test_a_missing_right_is_reported_with_the_api_servers_message(plural: str) -> None:
    api = whole_api()
    words = f'{plural} is forbidden: User "somebody" cannot do that'
    api.fault = lambda _, asked: ApiError(403, "Forbidden", words) if asked == plural else None
    with pytest.raises(RightsMissing, match=f"{words}: apply deploy/base/controllers.yaml"):
        check.wait(api, LEASE, Event())


@pytest.mark.parametrize("status", [0, 401, 429, 500])
def test_passing_errors_are_waited_out(status: int, caplog: pytest.LogCaptureFixture) -> None:
    api, failures = whole_api(), count()
    api.fault = lambda verb, _: ApiError(status, "", "away") if verb == "list" and next(failures) < 3 else None
    assert check.wait(api, LEASE, Event(), Backoff(0.001, 0.001))
    assert [record.message for record in caplog.records] == ["API server not available"] * 3


def test_a_stop_ends_the_wait_at_once() -> None:
    api, stop = whole_api(), Event()

    def away(_verb: str, _plural: str) -> ApiError:
        stop.set()
        return ApiError(0, "", "away")

    api.fault = away
    assert not check.wait(api, LEASE, stop)
