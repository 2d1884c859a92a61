"""The ClusterRole gkm-reader has each right that `gkm doctor` needs, and none that no command of readers uses."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import yaml
from gkm.kube.errors import ApiError
from gkm.kube.resources import DAEMON_SETS, DEFINITIONS, EVENTS, VALIDATING_WEBHOOKS
from gkm_cli.doctor.bundle import contents
from gkm_cli.doctor.checks import CHECKS
from gkm_cli.doctor.installation.observation import DEPLOYMENTS
from gkm_cli.doctor.runner import ClusterReader, run_checks
from support.chart.deploy_files import rendered
from support.cli.doctor_lists import CUTOFF
from support.grove.kinds import COMPUTE_DOMAIN
from support.kube.fake_api import FakeApi

BY_OTHERS = {
    # `gkm why` (tests/partners/cli/test_doctor_faults.py reads a pod with this role); the namespace is that of -n.
    ("get", "pods"),
    ("list", "events"),
    ("get", "csinodes"),
    ("get", "namespaces"),
    *(("get", plural) for plural in ("replicasets", "statefulsets", "jobs")),
    *(("get", plural) for plural in ("gkmcaches", "clustergkmcaches", "gkmcachenodes", "clustergkmcachenodes")),
    # `gkm plan` and `gkm plan unfold` (tests/unit/cli/plan/test_live.py).
    ("get", "placementplans"),
    ("list", "placementplans"),
    ("list", "runs"),
    # The bundle of `gkm doctor`.
    *(("list", plural) for plural in ("nodefabrics", "providertrees", "daemonsets", "deployments")),
    # The check domains/switch, where network.autoMNNVLEnabled is on.
    ("get", "clusterroles"),
}
POD = {"runtimeClassName": "nvidia", "priorityClassName": "system-node-critical"}


def rules() -> list[dict[str, list[str]]]:
    roles = list(yaml.load_all((rendered() / "base" / "users.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader))
    found: list[dict[str, list[str]]]
    (found,) = (role["rules"] for role in roles if role["metadata"]["name"] == "gkm-reader")
    return found


def granted() -> Iterator[tuple[str, str]]:
    for rule in rules():
        yield from ((verb, resource) for verb in rule["verbs"] for resource in rule["resources"])


def listable() -> set[tuple[str, str]]:
    """Return the lists that the role grants, as API group and plural."""
    listed = [rule for rule in rules() if "list" in rule["verbs"]]
    return {(group, plural) for rule in listed for group in rule["apiGroups"] for plural in rule["resources"]}


def working(_name: str) -> AbstractContextManager[None]:
    return nullcontext()


def test_doctor_asks_for_exactly_the_rights_of_readers() -> None:
    asked: set[tuple[str, str]] = set()

    def record(verb: str, plural: str) -> ApiError | None:
        asked.add((verb, plural))
        return None

    api = FakeApi()
    metadata = {"name": "gkm-agent", "namespace": "gkm-system"}
    api.create(DAEMON_SETS, {"metadata": metadata, "spec": {"template": {"spec": POD}}})
    injected = {"cert-manager.io/inject-ca-from": "gkm-system/gkm-admission"}
    api.create(VALIDATING_WEBHOOKS, {"metadata": {"name": "gkm-caches", "annotations": injected}, "webhooks": []})
    api.create(DEFINITIONS, COMPUTE_DOMAIN)
    api.fault = record
    list(run_checks(CHECKS, ClusterReader(api, cutoff=CUTOFF), working))
    assert asked - set(granted()) == set()
    assert set(granted()) - asked - BY_OTHERS - OF_CACHES == set()


def test_readers_can_write_all_parts_of_a_bundle_but_logs() -> None:
    read = (*contents.KINDS, DAEMON_SETS, DEPLOYMENTS, EVENTS)
    wanted = {(each.api_version.rpartition("/")[0], each.plural) for each in read}
    assert wanted - listable() == set()


OF_CACHES = {
    *(("list", plural) for plural in ("gkmcaches", "clustergkmcaches", "gkmcachenodes", "clustergkmcachenodes")),
    *(("list", plural) for plural in ("grouptemplates", "pools", "taskgroups")),
}
"""Read where the kinds are ours; they are not in this API."""
