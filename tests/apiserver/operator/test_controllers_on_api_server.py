"""`gkm-operator controllers` as a process, with the account and the roles that ship, on a real kube-apiserver."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from gkm.kube.client import connect
from gkm.kube.resources import CLUSTERGKMCACHENODES, CLUSTERGKMCACHES, GKMCACHENODES, GKMCACHES, NODES, Json, Resource
from gkm_operator.caches.totals import AGENT_SETS
from gkm_operator.pods import PODS
from support.cluster.cluster import Cluster
from support.host import pages
from support.operator.deployment import SIZE, Shelf, cache, node, operator, refused_requests
from support.operator.nodes import AGENT_SET, SYSTEM, agent_pod, kube_node, put
from support.registry.faults import status as answering

NAMESPACE = "controlled"


class Controlled:
    """A cluster with running controllers."""

    def __init__(self, cluster: Cluster, images: Shelf) -> None:
        self.cluster = cluster
        self.images = images
        self.api = connect(str(cluster.kubeconfig))

    def create(self, name: str, image: str, namespace: str | None = NAMESPACE) -> None:
        resource: Resource[Any] = GKMCACHES if namespace else CLUSTERGKMCACHES
        self.api.create(resource, cache(name, image, namespace))

    def report(self, name: str, caches: Mapping[str, Mapping[str, Any]], namespace: str | None = NAMESPACE) -> None:
        """Write the report of an agent."""
        resource: Resource[Any] = GKMCACHENODES if namespace else CLUSTERGKMCACHENODES
        put(self.api, NODES, kube_node(name))
        put(self.api, resource, node(name, caches, namespace))

    def until(self, name: str, good: Callable[[Json], bool], namespace: str | None = NAMESPACE) -> Json:
        """Wait until the status of a cache is so."""
        kind = "gkmcache" if namespace else "clustergkmcache"

        def probe() -> Json | None:
            found: Json = self.cluster.get(kind, name, namespace).get("status", {})
            return found if found and good(found) else None

        return self.cluster.until(probe, f"the status of {name}")

    def warned(self, name: str, namespace: str | None = NAMESPACE) -> list[str]:
        """The reasons of Warning events of a cache; those of a cluster-wide one live in `default`."""
        kind = "GKMCache" if namespace else "ClusterGKMCache"
        only = f"type=Warning,involvedObject.kind={kind},involvedObject.name={name}"
        found = self.cluster.objects.every("events", namespace or "default", fieldSelector=only)
        return [event["reason"] for event in found]

    def columns(self, name: str, namespace: str | None = NAMESPACE) -> dict[str, str]:
        """What `kubectl get` shows of a cache."""
        where = ("gkmc", name, "-n", namespace) if namespace else ("cgkmc", name)
        head, row = self.cluster.kubectl("get", *where).splitlines()
        # Some columns are empty, as Family is.
        starts = [found.start() for found in re.finditer(r"\S+", head)]
        ends = [*starts[1:], None]
        return {head[start:end].strip(): row[start:end].strip() for start, end in zip(starts, ends, strict=True)}


def condition(status: Json, kind: str) -> tuple[str, str]:
    """Return status and reason of a condition."""
    return next(((c["status"], c["reason"]) for c in status.get("conditions", []) if c["type"] == kind), ("", ""))


def node_counts(status: Json) -> tuple[int, int, int]:
    """Return how many nodes there are, how many are ready, and how many failed."""
    total, ready, failed = (status.get(f"{name}Nodes", 0) for name in ("total", "ready", "failed"))
    return total, ready, failed


@pytest.fixture(scope="module")
def running(gkm_cluster: Cluster, images: Shelf, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controlled]:
    gkm_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    directory = tmp_path_factory.mktemp("controllers")
    config = directory / "config.yaml"
    config.write_text(images.config(), encoding="utf-8")
    arguments = (
        "controllers",
        f"--config={config}",
        "--health=127.0.0.1:0",
        f"--kubeconfig={gkm_cluster.kubeconfig_for('system:serviceaccount:gkm-system:gkm-controllers')}",
    )
    with operator(directory, *arguments) as process:
        pages.wait_until_ready(process)
        yield Controlled(gkm_cluster, images)
        process.stop()
        assert process.popen.returncode == 0, process.tail()
        assert refused_requests(process.log.read_text(encoding="utf-8")) == []


def test_a_signed_image_is_resolved_and_verified(running: Controlled) -> None:
    image, digest = running.images.push("good")
    running.create("good", image)
    status = running.until("good", lambda status: bool(status.get("conditions")))
    assert condition(status, "Verified") == ("True", "CosignSuccess")
    assert condition(status, "Ready") == ("False", "NoMatchingNodes")
    assert condition(status, "Error") == ("False", "NoFailures")
    kept = {"image": image, "resolvedDigest": digest, "sizeBytes": SIZE, "observedGeneration": 1, "ready": "0/0"}
    assert kept.items() <= status.items()
    assert status["podsUsing"] == 0
    assert status["lastUpdated"].endswith("Z")
    shown = running.columns("good")
    assert (shown["READY"], shown["FAILED"], shown["STATUS"]) == ("0/0", "0", "NoMatchingNodes")


def test_an_unsigned_image_is_verified_after_it_is_signed(running: Controlled) -> None:
    image, digest = running.images.push("unsigned", flaw=None)
    running.create("unsigned", image)
    status = running.until("unsigned", lambda status: bool(status.get("conditions")))
    assert condition(status, "Verified") == ("False", "SignatureMissing")
    assert condition(status, "Ready") == ("False", "NotVerified")
    running.images.sign("unsigned", digest)
    running.until("unsigned", lambda status: condition(status, "Verified") == ("True", "CosignSuccess"))


def test_an_unreachable_registry_is_retried(running: Controlled) -> None:
    image, digest = running.images.push("away")
    running.images.registry.misbehave(answering("/v2/team/away/", 503))
    try:
        running.create("away", image)
        status = running.until("away", lambda status: bool(status.get("conditions")))
        assert condition(status, "Verified") == ("Unknown", "RegistryUnavailable")
        assert "resolvedDigest" not in status
    finally:
        running.images.registry.behave()
    status = running.until("away", lambda status: condition(status, "Verified")[0] == "True")
    assert status["resolvedDigest"] == digest


def test_reports_of_nodes_are_summed(running: Controlled) -> None:
    image, digest = running.images.push("summed")
    for namespace in (NAMESPACE, None):
        running.create("summed", image, namespace)
        pod = {"namespace": "a", "name": "p", "volumeId": "v", "digest": digest}
        running.report("node-a", {"summed": {"state": "Ready", "digest": digest, "pods": [pod]}}, namespace)
        failed = {"state": "Failed", "digest": digest, "reason": "DiskFull"}
        running.report("node-b", {"summed": failed}, namespace)
        # Until the watch of Nodes shows them, nodes with a report count as silent.
        status = running.until("summed", lambda status: node_counts(status) == (2, 1, 1), namespace)
        expected = {
            "totalNodes": 2,
            "readyNodes": 1,
            "failedNodes": 1,
            "podsUsing": 1,
            "ready": "1/2",
            "failedNodeConditions": {"DiskFull": ["node-b"]},
        }
        assert expected.items() <= status.items()
        assert condition(status, "Ready") == ("False", "NodesFailed")
        assert condition(status, "Error") == ("True", "NodeFailuresPresent")
        running.cluster.until(lambda: running.warned("summed", namespace), "a warning")  # noqa: B023 -- called here
        shown = running.columns("summed", namespace)
        assert {"READY": "1/2", "FAILED": "1", "STATUS": "NodesFailed"}.items() <= shown.items()
        running.report("node-b", {"summed": {"state": "Ready", "digest": digest}}, namespace)
        status = running.until("summed", lambda status: status["ready"] == "2/2", namespace)
        assert condition(status, "Ready") == ("True", "AllNodesReady")
        assert "failedNodeConditions" not in status


def test_a_mixed_cluster_has_the_cache_ready_where_it_fits(running: Controlled) -> None:
    image, digest = running.images.push("mixed")
    running.create("mixed", image)
    running.report("node-cuda", {"mixed": {"state": "Ready", "digest": digest}})
    misfit = {"state": "Incompatible", "digest": digest, "reason": "ArchitectureMismatch"}
    running.report("node-hip", {"mixed": misfit})
    status = running.until("mixed", lambda status: node_counts(status) == (2, 1, 0))
    counts = {"readyNodes": 1, "failedNodes": 0, "incompatibleNodes": 1, "ready": "1/1"}
    assert counts.items() <= status.items()
    assert status["incompatibleNodeConditions"] == {"ArchitectureMismatch": ["node-hip"]}
    assert condition(status, "Ready") == ("True", "AllNodesReady")
    assert condition(status, "Error") == ("False", "NoFailures")
    assert not running.warned("mixed", NAMESPACE)
    shown = running.columns("mixed", NAMESPACE)
    assert {"READY": "1/1", "FAILED": "0", "STATUS": "AllNodesReady"}.items() <= shown.items()


@pytest.fixture
def agents_in_pods(running: Controlled) -> Iterator[None]:
    """Run agents as Pods during the test: without them the Node alone decides about its liveness."""
    running.api.create(AGENT_SETS, AGENT_SET)
    try:
        yield
    finally:
        running.api.delete(AGENT_SETS, "gkm-agent", SYSTEM)


@pytest.mark.usefixtures("agents_in_pods")
def test_a_node_that_falls_silent_or_leaves_is_not_counted_as_ready(running: Controlled) -> None:
    image, digest = running.images.push("silent")
    running.create("silent", image)
    for name in ("node-quiet", "node-talks"):
        running.report(name, {"silent": {"state": "Ready", "digest": digest}})
        put(running.api, PODS, agent_pod(name))
    running.until("silent", lambda status: status.get("ready") == "2/2")
    put(running.api, PODS, agent_pod("node-quiet", "False"))
    status = running.until("silent", lambda status: status["ready"] == "1/2")
    (said,) = [c["message"] for c in status["conditions"] if c["type"] == "Ready"]
    assert said == "1 of 2 nodes are ready, 0 failed, 1 silent: node-quiet (its agent is not ready)"
    assert condition(status, "Error") == ("False", "NoFailures")
    put(running.api, PODS, agent_pod("node-quiet"))
    running.until("silent", lambda status: status["ready"] == "2/2")
    put(running.api, NODES, kube_node("node-quiet", "False"))
    status = running.until("silent", lambda status: status["ready"] == "1/2")
    assert "node-quiet (the Node is not ready)" in str(status["conditions"])
    running.api.delete(NODES, "node-quiet")
    running.until("silent", lambda status: status["ready"] == "1/1")


def test_a_pinned_cache_keeps_its_digest_and_a_new_image_is_resolved(running: Controlled) -> None:
    image, digest = running.images.push("pinned")
    running.create("pinned", image)
    running.until("pinned", lambda status: condition(status, "Verified")[0] == "True")
    running.images.push("pinned", salt="moved")
    other, other_digest = running.images.push("pinned-other")
    running.api.merge(GKMCACHES, "pinned", {"metadata": {"labels": {"touched": "yes"}}}, NAMESPACE)
    assert running.api.get(GKMCACHES, "pinned", NAMESPACE).status.resolved_digest == digest
    running.api.merge(GKMCACHES, "pinned", {"spec": {"image": other}}, NAMESPACE)
    status = running.until("pinned", lambda status: status.get("image") == other)
    assert (status["resolvedDigest"], status["observedGeneration"]) == (other_digest, 2)


def test_people_see_it_in_columns_and_events(running: Controlled) -> None:
    image, _ = running.images.push("seen")
    running.create("seen", image)
    running.until("seen", lambda status: bool(status.get("conditions")))
    shown = running.columns("seen")
    assert list(shown) == ["NAME", "READY", "FAILED", "STATUS", "VERIFIED", "IN-USE", "FAMILY", "GENERATION", "AGE"]
    assert list(shown.values())[:6] == ["seen", "0/0", "0", "NoMatchingNodes", "CosignSuccess", "0"]
    told = running.cluster.until(
        lambda: running.cluster.kubectl("events", "--for=gkmcache/seen", "--namespace", NAMESPACE, "--no-headers"),
        "an event",
    )
    assert "CosignSuccess" in told
