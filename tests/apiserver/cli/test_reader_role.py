"""The ClusterRole gkm-reader has each right that `gkm doctor` needs, and none that no command of readers uses."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import yaml
from gkm.kube.errors import ApiError
from gkm.kube.resources import DAEMON_SETS, DEFINITIONS, VALIDATING_WEBHOOKS
from gkm_cli.doctor.checks import CHECKS
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
    # The check domains/switch, where network.autoMNNVLEnabled is on.
    ("get", "clusterroles"),
}
POD = {"runtimeClassName": "nvidia", "priorityClassName": "system-node-critical"}


def granted() -> Iterator[tuple[str, str]]:
    roles = list(yaml.load_all((rendered() / "base" / "users.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader))
    (rules,) = (role["rules"] for role in roles if role["metadata"]["name"] == "gkm-reader")
    for rule in rules:
        yield from ((verb, resource) for verb in rule["verbs"] for resource in rule["resources"])


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


OF_CACHES = {
    *(("list", plural) for plural in ("gkmcaches", "clustergkmcaches", "gkmcachenodes", "clustergkmcachenodes")),
    *(("list", plural) for plural in ("grouptemplates", "pools", "taskgroups")),
}
"""Read where the kinds are ours; they are not in this API."""
