"""What the controller of ComputeDomains finds at the API server, and the check at the start of the process."""

from threading import Event
from typing import Any

import pytest
from gkm.api import crds
from gkm.api.features import Feature, install
from gkm.api.imex import IMEXMode
from gkm.hoststate.pacing import Backoff
from gkm.kube.errors import ApiError
from gkm.kube.resources import (
    CLAIM_TEMPLATES,
    CLUSTERROLES,
    COMPUTEDOMAINS,
    DEFINITIONS,
    DEVICE_CLASSES,
    PODCLIQUESETS,
    RESOURCE_SLICES,
    Json,
)
from gkm_operator import installation
from gkm_operator.computedomains.presence import Presence, observe
from gkm_operator.installation import MNNVLMissing, RightsMissing
from support.grove.imex import SLICES, publish, resource_slice
from support.kube.fake_api import FakeApi

LEASE = ("gkm-system", "gkm-controllers")
ROLES = ("rbac.authorization.k8s.io/v1", "clusterroles")
V1BETA1 = "resource.nvidia.com/v1beta1"
OTHERS = {
    (kind.api_version, kind.plural) for kind in (CLAIM_TEMPLATES, PODCLIQUESETS, DEVICE_CLASSES, RESOURCE_SLICES)
} | {ROLES}


def api_with(*served: tuple[str, str]) -> FakeApi:
    api = FakeApi()
    api.served = {*OTHERS, *served}
    return api


@pytest.mark.parametrize(
    ("served", "passes"),
    [
        ([(V1BETA1, "computedomains")], True),
        ([("v1", "pods"), (V1BETA1, "computedomains"), (V1BETA1, "computedomaincliques")], True),
        ([], False),
        ([(V1BETA1, "computedomaincliques")], False),
        ([("resource.example.com/v1beta1", "computedomains")], False),
        ([("resource.nvidia.com/v2", "computedomains")], False),
        ([("resource.nvidia.com/v1", "computedomains")], False),
    ],
    ids=["present", "among others", "none", "another resource", "another group", "v2", "v1"],
)
def test_with_the_switch_on_the_process_needs_the_kind(served: list[tuple[str, str]], passes: bool) -> None:  # noqa: FBT001
    """The table "Preflight" of grove-04."""
    api = api_with(*served)
    if passes:
        installation.check_mnnvl(api)
        return
    with pytest.raises(MNNVLMissing) as caught:
        installation.check_mnnvl(api)
    assert str(caught.value) == (
        "MNNVL preflight check failed: MNNVL is enabled but ComputeDomain CRD (computedomains.resource.nvidia.com, "
        "version v1beta1) is not installed; install NVIDIA's DRA driver, or set network.autoMNNVLEnabled to false"
    )


def test_a_cluster_without_claim_templates_is_named() -> None:
    api = api_with((V1BETA1, "computedomains"))
    api.served = {(V1BETA1, "computedomains")}
    with pytest.raises(MNNVLMissing, match=r"resourceclaimtemplates of resource\.k8s\.io/v1 are not served"):
        installation.check_mnnvl(api)


def test_a_missing_right_is_named() -> None:
    api = api_with((V1BETA1, "computedomains"))
    api.fault = lambda _, plural: ApiError(403, "Forbidden", "no list") if plural == "computedomains" else None
    with pytest.raises(RightsMissing, match=r"no list: set features\.domains=true .* components/domains of"):
        installation.check_mnnvl(api)


def test_an_api_server_that_is_away_is_waited_for() -> None:
    """The row "discovery error": it may pass, so the process does not end."""
    api, failures = whole_api(), iter(range(100))
    api.fault = lambda _, plural: (
        ApiError(503, "", "away") if plural == "computedomains" and next(failures) < 3 else None
    )
    assert installation.wait(api, LEASE, Event(), Backoff(0.001, 0.001), mnnvl_enabled=True)
    assert len([call for call in api.calls if call[:2] == ("list", "computedomains")]) == 4


def whole_api() -> FakeApi:
    api = FakeApi()
    for definition in crds.definitions().values():
        api.create(DEFINITIONS, definition)
    return api


@pytest.mark.parametrize("enabled", [False, True])
def test_with_the_switch_off_nothing_is_required(enabled: bool) -> None:  # noqa: FBT001
    api = whole_api()
    api.fault = lambda _, plural: ApiError(404, "", "") if plural == COMPUTEDOMAINS.plural else None
    if enabled:
        with pytest.raises(MNNVLMissing):
            installation.wait(api, LEASE, Event(), mnnvl_enabled=True)
    else:
        assert installation.wait(api, LEASE, Event())


def role(**rule: Any) -> Json:  # noqa: ANN401 -- JSON
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]},
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
        rule,
    ]
    return {
        "apiVersion": CLUSTERROLES.api_version,
        "kind": "ClusterRole",
        "metadata": {"name": "grove:system:grove-operator"},
    } | {"rules": rules}


@pytest.mark.parametrize(
    ("rule", "manages"),
    [
        ({"apiGroups": ["resource.nvidia.com"], "resources": ["computedomains"], "verbs": ["get", "create"]}, True),
        ({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, True),
        ({"apiGroups": ["resource.nvidia.com"], "resources": ["computedomains"], "verbs": ["get", "list"]}, False),
        ({"apiGroups": ["resource.nvidia.com"], "resources": ["computedomains/status"], "verbs": ["create"]}, False),
        ({"apiGroups": ["grove.io"], "resources": ["computedomains"], "verbs": ["create"]}, False),
    ],
)
def test_groves_role_shows_whether_grove_manages_domains(rule: Json, *, manages: bool) -> None:
    api = api_with((V1BETA1, "computedomains"))
    api.create(CLUSTERROLES, role(**rule))
    found = observe(api, "grove:system:grove-operator", Presence())
    assert (found.available, found.sets, found.grove_manages) == (True, True, manages)
    assert [(one.type, one.status) for one in found.conditions()] == [
        ("DomainsAvailable", "True"),
        ("GroveManagesDomains", "True" if manages else "False"),
    ]


@pytest.mark.parametrize("host_managed", [True, False])
def test_the_devices_of_the_driver_show_who_runs_imex(host_managed: bool) -> None:  # noqa: FBT001
    api = api_with((V1BETA1, "computedomains"))
    assert observe(api, "grove:system:grove-operator", Presence()).imex is IMEXMode.UNKNOWN
    publish(api, host_managed=host_managed)
    found = observe(api, "grove:system:grove-operator", Presence())
    assert found.imex is (IMEXMode.HOST_MANAGED if host_managed else IMEXMode.DRIVER_MANAGED)
    assert ("hostManaged" in found.conditions()[0].message) == host_managed


def test_a_node_that_still_publishes_daemons_keeps_the_mode_of_the_driver() -> None:
    api = api_with((V1BETA1, "computedomains"))
    publish(api, host_managed=True)
    api.put(SLICES, resource_slice("late", "channel", "daemon"))
    assert observe(api, "grove:system:grove-operator", Presence()).imex is IMEXMode.DRIVER_MANAGED


def test_without_grove_gkm_manages_domains_and_sets_may_be_missing() -> None:
    api = api_with((V1BETA1, "computedomains"))
    assert api.served is not None
    api.served -= {(PODCLIQUESETS.api_version, "podcliquesets")}
    found = observe(api, "grove:system:grove-operator", Presence())
    assert (found.available, found.sets, found.grove_manages) == (True, False, False)


def test_a_missing_kind_is_a_condition() -> None:
    found = observe(api_with(), "grove:system:grove-operator", Presence())
    condition = found.conditions()[0]
    assert (condition.status, condition.reason) == ("False", "KindMissing")
    assert "computedomains.resource.nvidia.com, version v1beta1) is not installed" in condition.message
    assert condition.last_transition_time
    assert found.grove_manages is False, "without the kind, Grove writes no ComputeDomain either"


@pytest.mark.parametrize(
    "plural",
    ["computedomains", "resourceclaimtemplates", "podcliquesets", "clusterroles", "deviceclasses", "resourceslices"],
)
def test_a_missing_right_is_a_condition(plural: str) -> None:
    api = api_with((V1BETA1, "computedomains"))
    api.fault = lambda _, asked: ApiError(403, "Forbidden", f"no {plural}") if asked == plural else None
    found = observe(api, "grove:system:grove-operator", Presence())
    assert (found.available, found.reason) == (False, "RightsMissing")
    assert found.message == f"no {plural}: {install(Feature.DOMAINS)}"
    manages = found.conditions()[1]
    assert (manages.type, manages.status, manages.reason) == ("GroveManagesDomains", "Unknown", "RightsMissing")


def test_a_look_that_finds_nothing_new_keeps_the_time() -> None:
    first = observe(api_with(), "grove:system:grove-operator", Presence())
    assert observe(api_with(), "grove:system:grove-operator", first) is first


def test_an_api_server_that_is_away_changes_nothing() -> None:
    api = api_with()
    api.fault = lambda _verb, _plural: ApiError(0, "Unreachable", "away")
    with pytest.raises(ApiError, match="Unreachable: away"):
        observe(api, "grove:system:grove-operator", Presence())
