"""Two replicas of the controllers on a real kube-apiserver, with the account and the roles that ship: one works."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from gkm.kube.client import connect
from gkm.kube.errors import ApiError
from gkm.kube.leases import LEASES, LeaseSpec
from gkm.kube.resources import GKMCACHES
from support.cluster.cluster import Cluster
from support.cluster.rights import until_rights_hold
from support.host import listening, pages
from support.host.processes import Process
from support.host.waiting import scaled
from support.operator.deployment import Shelf, cache, operator

NAMESPACE = "led"


class Replicas:
    """Controllers that compete; each logs into a file of its own."""

    def __init__(self, cluster: Cluster, images: Shelf, directory: Path, stack: ExitStack) -> None:
        self.cluster = cluster
        self.images = images
        self.api = connect(str(cluster.kubeconfig))
        self._directory = directory
        self._stack = stack
        self._pages: dict[str, str] = {}
        self._config = directory / "config.yaml"
        self._config.write_text(images.config(), encoding="utf-8")

    def start(self, name: str) -> Process:
        directory = self._directory / name
        directory.mkdir()
        arguments = (
            "controllers",
            f"--config={self._config}",
            "--health=127.0.0.1:0",
            f"--kubeconfig={self.cluster.kubeconfig_for('system:serviceaccount:gkm-system:gkm-controllers')}",
            f"--identity={name}",
            f"--lease={self.lease}",
        )
        process = self._stack.enter_context(operator(directory, *arguments))
        pages.wait_until_ready(process)
        self._pages[name] = listening.address(process)
        return process

    def metrics(self, name: str) -> set[str]:
        """Return the lines of a replica's metrics."""
        return set(pages.fetch(self._pages[name], "metrics")[1].splitlines())

    def until_counted(self, name: str, counted: str) -> None:
        """Wait for a line of a replica's metrics: it counts a request after its answer, and a reconcile at its end."""
        self.cluster.until(lambda: any(line.startswith(counted) for line in self.metrics(name)), counted)

    @property
    def lease(self) -> str:
        return self._directory.name

    def holder(self) -> str:
        try:
            return self.spec().holder_identity or ""
        except ApiError as error:
            # Nobody has led yet: a replica is ready just before it makes the Lease.
            if error.not_found:
                return ""
            raise

    def spec(self) -> LeaseSpec:
        return self.api.get(LEASES, self.lease, "gkm-system").spec

    def verified(self, name: str) -> bool:
        found = self.cluster.get("gkmcache", name, NAMESPACE).get("status", {})
        return any(one["type"] == "Verified" and one["status"] == "True" for one in found.get("conditions", []))

    def events(self, name: str) -> list[str]:
        """Return the reasons of the events about a cache."""
        found = self.cluster.objects.every("events", NAMESPACE, fieldSelector=f"involvedObject.name={name}")
        return [event["reason"] for event in found]


def log_text(process: Process, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in process.log.read_text(encoding="utf-8").splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("event") == event]


@pytest.fixture
def replicas(gkm_cluster: Cluster, images: Shelf, tmp_path: Path) -> Iterator[Replicas]:
    gkm_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    directory = tmp_path / f"lease-{tmp_path.name[-20:].replace('_', '-')}"
    directory.mkdir()
    with ExitStack() as stack:
        allowed = gkm_cluster.get("role", "gkm-controllers-lease", "gkm-system")
        allowed["rules"][0]["resourceNames"] = [directory.name]
        gkm_cluster.apply(
            {key: allowed[key] for key in ("apiVersion", "kind", "rules")}
            | {"metadata": {"name": directory.name, "namespace": "gkm-system"}}
        )
        gkm_cluster.apply(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": {"name": directory.name, "namespace": "gkm-system"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": directory.name},
                "subjects": [{"kind": "ServiceAccount", "name": "gkm-controllers", "namespace": "gkm-system"}],
            }
        )
        until_rights_hold(gkm_cluster)
        yield Replicas(gkm_cluster, images, directory, stack)


def test_a_new_leader_follows_a_killed_one_without_lost_or_repeated_events(replicas: Replicas) -> None:
    first = replicas.start("first")
    replicas.cluster.until(lambda: replicas.holder() == "first", "the first to lead")
    second = replicas.start("second")
    before, _ = replicas.images.push("before-the-kill")
    replicas.api.create(GKMCACHES, cache("before", before, NAMESPACE))
    replicas.cluster.until(lambda: replicas.verified("before"), "the first to work")
    assert not log_text(second, "lease acquired")
    # How many wait is up to the other tests of this cluster.
    for counted in (
        "gkm_leader 1.0",
        'gkm_queue_depth{controller="verify"}',
        'gkm_reconcile_seconds_count{controller="verify",result="done"}',
        'gkm_api_requests_total{code="200",verb="apply"}',
    ):
        replicas.until_counted("first", counted)
    waiting = replicas.metrics("second")
    assert "gkm_leader 0.0" in waiting
    assert "gkm_queue_depth{" not in waiting

    first.popen.kill()
    first.popen.wait()
    after, _ = replicas.images.push("after-the-kill")
    replicas.api.create(GKMCACHES, cache("after", after, NAMESPACE))
    replicas.cluster.until(lambda: replicas.verified("after"), "the second to work")

    assert replicas.holder() == "second"
    assert replicas.spec().lease_transitions == 1
    replicas.cluster.until(lambda: replicas.events("after"), "the transition to be told")
    assert len(replicas.events("before")) == 1
    assert len(replicas.events("after")) == 1


def test_a_stopping_leader_releases_the_lease(replicas: Replicas) -> None:
    first = replicas.start("first")
    replicas.cluster.until(lambda: replicas.holder() == "first", "the first to lead")
    first.stop()
    assert first.popen.returncode == 0, first.tail()
    assert replicas.holder() == ""


def test_a_process_that_lost_its_lease_ends(replicas: Replicas) -> None:
    first = replicas.start("first")
    replicas.cluster.until(lambda: replicas.holder() == "first", "the first to lead")
    taken = {"spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 3600}}
    replicas.api.merge(LEASES, replicas.lease, taken, "gkm-system")
    assert first.popen.wait(scaled(120)) == 1
    assert "the lease was not renewed in time" in log_text(first, "process failed")[0]["why"]
