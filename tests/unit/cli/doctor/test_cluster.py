"""Checks of the installed kind and of the switches."""

import copy
from typing import Any

import pytest
from gkm.api.cluster_roles import ClusterRole
from gkm.kube.errors import ApiError
from gkm.kube.resources import CLUSTERROLES, CONFIGMAPS, DEFINITIONS, DEVICE_CLASSES
from gkm_cli.clusters.reads import Unreadable
from gkm_cli.doctor.domains import cluster
from gkm_cli.doctor.findings import Severity
from gkm_cli.doctor.runner import ClusterReader
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert
from support.cli.doctor_lists import CUTOFF, brief
from support.grove.imex import daemon_class, publish
from support.grove.kinds import COMPUTE_DOMAIN
from support.kube.fake_api import FakeApi

Json = dict[str, Any]
CRD = "CustomResourceDefinition computedomains.resource.nvidia.com"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def changed(*path: str | int, to: object) -> Json:
    """The definition with another value at a path; None removes it."""
    made = copy.deepcopy(COMPUTE_DOMAIN)
    found: Any = made
    for step in path[:-1]:
        found = found.setdefault(step, {}) if isinstance(step, str) else found[step]
    if to is None:
        del found[path[-1]]
    else:
        found[path[-1]] = to
    return made


SPEC = ("spec", "versions", 0, "schema", "openAPIV3Schema", "properties", "spec")


def test_the_definition_of_release_v0_4_gives_no_finding() -> None:
    assert list(cluster.definition_findings(COMPUTE_DOMAIN)) == []
    assert list(cluster.definition_findings(changed("status", "storedVersions", to=["v1beta1"]))) == []


@pytest.mark.parametrize(
    ("definition", "severity", "detail"),
    [
        (changed("spec", "versions", 0, "served", to=False), "problem", "does not serve v1beta1"),
        (changed("spec", "versions", 0, "name", to="v1"), "problem", "does not serve v1beta1"),
        (changed("spec", "versions", to=None), "problem", "does not serve v1beta1"),
        (
            changed(*SPEC, "properties", "channel", "properties", to={"resourceClaimTemplateName": {}}),
            "problem",
            "it has no spec.channel.resourceClaimTemplate.name",
        ),
        (changed(*SPEC, "properties", "numNodes", "minimum", to=1), "problem", "numNodes must be at least 1"),
        (changed(*SPEC, "required", to=["channel", "numNodes"]), "warning", "numNodes is required"),
        (changed("status", "storedVersions", to=["v1beta1", "v1"]), "warning", "several versions: v1beta1, v1"),
    ],
    ids=["not served", "another version", "no versions", "Grove's field", "minimum", "v25.x", "stored versions"],
)
def test_each_fault_of_the_definition_is_found(definition: Json, severity: str, detail: str) -> None:
    found = list(cluster.definition_findings(definition))
    assert brief(found) == [(severity, CRD)]
    assert detail in found[0].detail


@given(JSON)
def test_a_definition_of_any_shape_gives_findings_and_no_error(anything: object) -> None:
    assert cluster.definition_findings(anything) is not None
    assert "does not serve v1beta1" in next(cluster.definition_findings(anything)).detail


@given(st.sampled_from([SPEC, SPEC[:-1], SPEC[:5], (*SPEC, "required"), (*SPEC, "properties", "numNodes")]), JSON)
def test_a_schema_of_any_shape_gives_no_error(path: tuple[str | int, ...], anything: object) -> None:
    if anything is not None:
        list(cluster.definition_findings(changed(*path, to=anything)))


def config(text: str) -> Json:
    metadata = {"name": "gkm-config", "namespace": "gkm-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"config.yaml": text}}


def role(*rules: Json, name: str = "grove:system:grove-operator") -> Json:
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}} | {
        "rules": list(rules)
    }


def reader(*configs: str, roles: tuple[Json, ...] = (), definition: Json | None = None) -> ClusterReader:
    api = FakeApi()
    for text in configs:
        api.create(CONFIGMAPS, config(text))
    for one in roles:
        api.create(CLUSTERROLES, one)
    if definition:
        api.create(DEFINITIONS, definition)
    return ClusterReader(api, cutoff=CUTOFF)


ON = "network: {autoMNNVLEnabled: true}"
DOMAINS = {"apiGroups": ["resource.nvidia.com"], "resources": ["computedomains"], "verbs": ["create", "delete"]}


@pytest.mark.parametrize(
    "rule",
    [
        DOMAINS,
        DOMAINS | {"verbs": ["*"]},
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        DOMAINS | {"apiGroups": ["grove.io", "resource.nvidia.com"]},
    ],
)
def test_both_switches_on_is_a_problem(rule: Json) -> None:
    found = list(cluster.switch(reader(ON, roles=(role({"verbs": ["get"]}, rule),))))
    assert brief(found) == [("problem", "ClusterRole grove:system:grove-operator")]


@pytest.mark.parametrize(
    ("configs", "roles"),
    [
        ((), (role(DOMAINS),)),
        (("",), (role(DOMAINS),)),
        (("network: {autoMNNVLEnabled: false}",), (role(DOMAINS),)),
        ((ON,), ()),
        ((ON,), (role(DOMAINS | {"verbs": ["get", "list"]}),)),
        ((ON,), (role(DOMAINS | {"resources": ["computedomains/status"]}),)),
        ((ON,), (role(DOMAINS | {"apiGroups": ["grove.io"]}),)),
        ((ON,), (role(DOMAINS | {"resourceNames": ["one"]}),)),
        ((ON,), (role(),)),
        ((ON,), (role(DOMAINS, name="other"),)),
    ],
)
def test_one_switch_alone_is_fine(configs: tuple[str, ...], roles: tuple[Json, ...]) -> None:
    found = list(cluster.switch(reader(*configs, roles=roles)))
    assert [one.severity for one in found] == ([] if ON in configs else [Severity.SKIPPED])


def test_the_role_is_the_configured_one() -> None:
    text = "network: {autoMNNVLEnabled: true, groveClusterRole: other}"
    found = list(cluster.switch(reader(text, roles=(role(DOMAINS, name="other"),))))
    assert brief(found) == [("problem", "ClusterRole other")]


@pytest.mark.parametrize("text", ["network: {autoMNNVL: true}", "[", "network: 1"])
def test_an_invalid_configuration_is_not_taken_for_one_with_the_switch_off(text: str) -> None:
    with pytest.raises(Unreadable, match=r"gkm-system/gkm-config") as caught:
        list(cluster.switch(reader(text)))
    # The command ends at such a mistake, so it lists no others.
    assert caught.value.hint == "correct it: gkm-operator --check-config --config FILE"


def test_without_the_kind_the_switch_decides() -> None:
    assert brief(list(cluster.version(reader()))) == [("skipped", "")]
    assert brief(list(cluster.version(reader(ON)))) == [("problem", CRD)]


def test_an_api_server_without_claims_is_a_problem_if_the_kind_is_installed() -> None:
    made = reader(definition=COMPUTE_DOMAIN)
    assert list(cluster.version(made)) == []
    api = FakeApi()
    api.create(DEFINITIONS, COMPUTE_DOMAIN)
    api.fault = lambda _, plural: (
        ApiError(404, "", "404 page not found") if plural == "resourceclaimtemplates" else None
    )
    found = list(cluster.version(ClusterReader(api, cutoff=CUTOFF)))
    assert brief(found) == [("problem", "API resource.k8s.io/v1")]


def test_a_role_without_rules_allows_nothing() -> None:
    values: list[Json] = [{}, {"rules": None}, {"rules": [{}]}, {"rules": [{"verbs": None}]}]
    for value in values:
        assert not convert(value, ClusterRole).allows("create", "resource.nvidia.com", "computedomains")


SITE = "DeviceClass compute-domain-daemon.nvidia.com"


def found_imex(api: FakeApi) -> list[tuple[str, str, str]]:
    api.create(DEFINITIONS, COMPUTE_DOMAIN)
    found = cluster.imex(ClusterReader(api, cutoff=CUTOFF))
    return [(one.severity.value, one.object, one.detail) for one in found]


@pytest.mark.parametrize(
    ("host_managed", "words"), [(True, "the hosts run the IMEX daemons (hostManaged)"), (False, "(driverManaged)")]
)
def test_doctor_says_who_runs_the_imex_daemons(host_managed: bool, words: str) -> None:  # noqa: FBT001
    api = FakeApi()
    publish(api, host_managed=host_managed)
    ((severity, about, detail),) = found_imex(api)
    assert (severity, about) == ("ok", "")
    assert words in detail


def test_without_channels_the_mode_is_not_known() -> None:
    ((severity, _, detail),) = found_imex(FakeApi())
    assert (severity, "not known" in detail) == ("skipped", True)


def test_without_compute_domains_nothing_is_looked_at_for_imex() -> None:
    assert brief(list(cluster.imex(ClusterReader(FakeApi(), cutoff=CUTOFF)))) == [("skipped", "")]


@pytest.mark.parametrize(("host_managed", "words"), [(True, "exists, and no node publishes"), (False, "nodes publish")])
def test_a_driver_between_two_modes_is_a_warning(host_managed: bool, words: str) -> None:  # noqa: FBT001
    api = FakeApi()
    publish(api, host_managed=host_managed)
    if host_managed:
        api.create(DEVICE_CLASSES, daemon_class())
    else:
        api.delete(DEVICE_CLASSES, daemon_class()["metadata"]["name"])
    ((severity, about, detail),) = found_imex(api)
    assert (severity, about) == ("warning", SITE)
    assert words in detail
