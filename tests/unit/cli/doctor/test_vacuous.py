"""A check with nothing to look at says so, and never that all is well."""

from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest
from gkm.kube.api import EVERYTHING, PAGE_LIMIT, ListPage, ListSelector
from gkm.kube.resources import CONFIGMAPS, Resource
from gkm_cli.doctor.checks import CHECKS
from gkm_cli.doctor.findings import Finding, Severity
from gkm_cli.doctor.installation.observation import BINDINGS
from gkm_cli.doctor.runner import ClusterReader, run_checks
from support.cli.observations import cache, config, hook, node, observed, pod, report
from support.kube.fake_api import FakeApi

T = TypeVar("T")
NEVER_EMPTY = {
    *("kinds/missing", "config/invalid", "rights/bindings", "webhook/missing", "csi/driver-missing", "csi/missing"),
    *("agent/missing", "controllers/missing"),
}
"""Checks that look at one object, whose absence is the fault."""


class RecordingApi(FakeApi):
    """Remembers the selectors of the lists of pods."""

    def __init__(self) -> None:
        super().__init__()
        self.of_pods: list[ListSelector] = []

    def list_pages(
        self, resource: Resource[T], selector: ListSelector = EVERYTHING, limit: int = PAGE_LIMIT
    ) -> Iterator[ListPage[T]]:
        if resource.plural == "pods":
            self.of_pods.append(selector)
        return super().list_pages(resource, selector, limit)


def results(api: FakeApi, namespace: str = "") -> dict[str, list[Finding]]:
    reader = ClusterReader(api, namespace=namespace, cutoff="2026-11-23T11:59:00Z", now=lambda: datetime.now(UTC))
    found: dict[str, list[Finding]] = {}
    for one in run_checks(CHECKS, reader, lambda _: nullcontext()):
        found.setdefault(one.check, []).append(one.finding)
    return found


@pytest.mark.parametrize("namespace", ["", "ml-apps"])
def test_in_an_empty_cluster_no_check_says_ok(namespace: str) -> None:
    found = results(FakeApi(), namespace)
    assert {name for name, each in found.items() if any(one.severity is Severity.OK for one in each)} == set()
    assert {name for name, each in found.items() if any(one.severity is Severity.NOT_CHECKED for one in each)} == set()
    skipped = {name: one.detail for name, each in found.items() for one in each if one.severity is Severity.SKIPPED}
    assert all(text.startswith("no objects: ") for text in skipped.values())
    assert {name for name, each in found.items() if each[0].severity is Severity.PROBLEM} == NEVER_EMPTY


def test_without_compute_domains_no_check_reads_all_pods_of_the_cluster() -> None:
    api = RecordingApi()
    results(api)
    assert api.of_pods
    assert EVERYTHING not in api.of_pods, "a check of ComputeDomains, of which there are none, lists every pod"


def test_every_check_of_the_installation_has_a_subject() -> None:
    ours = [check for check in CHECKS if check.name.partition("/")[0] not in ("domains", "images")]
    assert {check.name for check in ours if check.subject is None} == NEVER_EMPTY


CONFIG = {"data": {"config.yaml": "{}"}}


def with_key(path: str) -> dict[str, Any]:
    return config(policies=[{"images": ["*"], "keys": [path]}])


def image(name: str) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"containers": [{"image": name}]}}}}


WITH_GROUPS = {"data": {"config.yaml": "taskGroups: {enabled: true}"}}
DAEMON_SET = {"metadata": {"creationTimestamp": "2026-11-20T00:00:00Z"}, "status": {"desiredNumberScheduled": 0}}


@pytest.mark.parametrize(
    ("name", "without", "with_it"),
    [
        (
            "agent/not-ready",
            {"daemon_sets": {"gkm-agent": DAEMON_SET}},
            {"pods": [pod("gkm-agent")]},
        ),
        ("csi/not-registered", {"pods": [pod("gkm-agent")]}, {"pods": [pod("gkm-csi")]}),
        ("nodes/kubelet", {"nodes": [node()]}, {"nodes": [node()], "pods": [pod("gkm-agent")]}),
        ("caches/no-policy", {"config_map": CONFIG}, {"config_map": CONFIG, "caches": [cache()]}),
        ("caches/failed", {"caches": [cache()]}, {"reports": [report("n", state="Ready")]}),
        ("config/rights", {"config_map": CONFIG}, {"config_map": WITH_GROUPS}),
        ("config/keys", {"config_map": with_key("/etc/keys/a.pub")}, {"config_map": with_key("/etc/gkm/a.pub")}),
        (
            "controllers/versions",
            {"daemon_sets": {"gkm-agent": image("r/gkm-agent@sha256:aa")}, "deployments": {"x": image("r/x:1")}},
            {"daemon_sets": {"gkm-agent": image("r/gkm-agent:1")}, "deployments": {"x": image("r/x:1")}},
        ),
        (
            "webhook/expired",
            {"webhook": hook(b"by its injector", by_cert_manager=True)},
            {"webhook": hook(by_cert_manager=True), "certificate": {"status": {"notAfter": "2027-01-01T00:00:00Z"}}},
        ),
    ],
)
def test_a_subject_is_what_the_check_compares(name: str, without: dict[str, Any], with_it: dict[str, Any]) -> None:
    (subject,) = (check.subject for check in CHECKS if check.name == name)
    assert subject
    assert not subject.find(observed(**without))
    assert subject.find(observed(**with_it))


@pytest.mark.parametrize("word", ["image", "auto", "csi", "neither"])
def test_a_cluster_whose_pods_get_image_volumes_lacks_no_daemon_set(word: str) -> None:
    api = FakeApi()
    meta = {"name": "gkm-config", "namespace": "gkm-system"}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"config.yaml": f"delivery: {word}\n"}}
    api.create(CONFIGMAPS, config)
    for name in ("gkm-controllers", "gkm-admission"):
        api.create(BINDINGS, {"metadata": {"name": name}, "roleRef": {"name": name}})
    found = results(api)
    checks = ("csi/driver-missing", "csi/missing", "agent/missing", "rights/bindings")
    unusual = {"csi": Severity.PROBLEM, "neither": Severity.NOT_CHECKED}  # the configuration cannot be used
    expected = unusual.get(word, Severity.OK)
    severities = {check: {one.severity for one in found[check]} for check in checks}
    assert severities == {check: {expected} for check in checks}, "the chart installs no agent, and no right of it"
