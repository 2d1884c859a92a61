"""The controllers in an API server where something is not installed, is another's, or that is away when they start."""

import json
from collections.abc import Callable
from itertools import count
from threading import Event
from typing import Any

import pytest
from gkm.api import crds
from gkm.hoststate.pacing import Backoff
from gkm.kube.errors import ApiError
from gkm.kube.resources import DEFINITIONS, NEEDED
from gkm_operator import installation
from gkm_operator.installation import KindsMissing, RightsMissing, foreign
from support.kube.fake_api import FakeApi
from support.operator.upstream import upstream

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
    assert installation.wait(whole_api(), LEASE, Event())


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
        installation.wait(api, LEASE, Event())


@pytest.mark.parametrize(
    "plural", ["customresourcedefinitions", "clustergkmcaches", "leases", "nodes", "pods", "daemonsets"]
)
def test_a_missing_right_is_reported_with_the_api_servers_message(plural: str) -> None:
    api = whole_api()
    words = f'{plural} is forbidden: User "somebody" cannot do that'
    api.fault = lambda _, asked: ApiError(403, "Forbidden", words) if asked == plural else None
    with pytest.raises(RightsMissing, match=f"{words}: upgrade the Helm chart, or apply base/controllers.yaml"):
        installation.wait(api, LEASE, Event())


@pytest.mark.parametrize("status", [0, 401, 429, 500])
def test_passing_errors_are_waited_out(status: int, caplog: pytest.LogCaptureFixture) -> None:
    api, failures = whole_api(), count()
    api.fault = lambda verb, _: ApiError(status, "", "away") if verb == "list" and next(failures) < 3 else None
    assert installation.wait(api, LEASE, Event(), Backoff(0.001, 0.001))
    assert [record.message for record in caplog.records] == [
        "API server not available, start-up checks are tried again"
    ] * 3


def test_a_stop_ends_the_wait_at_once() -> None:
    api, stop = whole_api(), Event()

    def away(_verb: str, _plural: str) -> ApiError:
        stop.set()
        return ApiError(0, "", "away")

    api.fault = away
    assert not installation.wait(api, LEASE, stop)


def ours(plural: str) -> Json:
    return crds.definitions()[f"gkm.io_{plural}.yaml"]


@pytest.mark.parametrize("plural", [resource.plural for resource in NEEDED])
def test_our_definitions_are_ours(plural: str) -> None:
    assert foreign(plural, ours(plural)) == ""


def test_a_definition_with_additional_fields_is_accepted() -> None:
    newer = ours("gkmcaches")
    schema = newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["later"] = {"type": "string"}
    newer["spec"]["versions"].insert(0, {"name": "v1beta1", "served": True})
    assert foreign("gkmcaches", newer) == ""


def test_a_definition_that_preserves_unknown_fields_is_accepted() -> None:
    loose = upstream()
    loose["spec"]["versions"][0]["schema"] = {
        "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    }
    assert foreign("gkmcaches", loose) == ""


def test_an_upstream_definition_is_recognized_by_its_missing_fields() -> None:
    message = foreign("gkmcaches", upstream())
    assert message.startswith("the API server's CustomResourceDefinition gkmcaches.gkm.io is not ours")
    assert "it lacks spec.imagePullSecrets, spec.nodeSelector, spec.updatePolicy, spec.rollout and" in message
    assert "upstream GKM: docs/how-to/migrate-from-upstream.md" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda found: found["spec"].update(scope="Cluster"), "is Cluster, ours is Namespaced"),
        (lambda found: found["spec"].update(versions=[]), "serves no v1alpha1"),
        (lambda found: found["spec"]["versions"][0].update(served=False), "serves no v1alpha1"),
        (lambda found: found["spec"]["versions"][0].update(schema={}), "it lacks .:"),
        (
            lambda found: status_of(found).update(resolvedDigest={"type": "object"}),
            "it lacks status.resolvedDigest:",
        ),
        (lambda found: status_of(found).pop("ready"), "it lacks status.ready:"),
        (lambda found: status_of(found)["conditions"].pop("items"), "it lacks status.conditions[]:"),
        (
            lambda found: status_of(found)["failedNodeConditions"]["additionalProperties"].update(type="string"),
            "it lacks status.failedNodeConditions.*:",
        ),
        (lambda found: status_of(found).update(conditions="hostile"), "it lacks status.conditions:"),
    ],
)
def test_a_difference_is_named(change: Callable[[Json], object], message: str) -> None:
    found = json.loads(json.dumps(ours("gkmcaches")))
    change(found)
    assert message in foreign("gkmcaches", found)


def test_an_earlier_version_is_not_called_foreign() -> None:
    earlier = json.loads(json.dumps(ours("gkmcaches")))
    del status_of(earlier)["ready"]
    assert "is of an earlier version, it lacks status.ready: apply our crds/" in foreign("gkmcaches", earlier)
    del earlier["metadata"]["labels"]
    assert "is not ours, it lacks status.ready: uninstall" in foreign("gkmcaches", earlier)


def status_of(definition: Json) -> Json:
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    found: Json = schema["properties"]["status"]["properties"]
    return found
