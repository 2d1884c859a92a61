"""Conditions, events and metrics of ComputeDomains, from the changes that watches deliver."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from gkm.api.domain_readiness import unused
from gkm.api.imex import IMEXMode
from gkm.kube.errors import ApiError
from gkm.kube.resources import NODES, PODCLIQUES, Json, Resource
from gkm_operator import metrics
from support.grove.observed import (
    CLIQUE,
    NAME,
    clique_json,
    domain_json,
    joined,
    node_json,
    template_json,
)
from support.grove.pods import pod
from support.host.waiting import until
from support.operator.domain_status import RunningStatus, StatusScene
from support.operator.domains import DOMAINS, TEMPLATES

PODS: Resource[Json] = Resource("v1", "Pod", "pods", namespaced=True, type=dict)
OWNER = {"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "name": "set", "uid": "u", "controller": True}


def used(name: str, node: str = "", **fields: Any) -> Json:  # noqa: ANN401 -- JSON
    return pod(name, node=node, **({"template": NAME} | fields))


def ready_scene(**metadata: Any) -> StatusScene:  # noqa: ANN401 -- JSON
    scene = StatusScene(**metadata)
    scene.put(used("a", "n1"))
    scene.change_domain(status={"nodes": [joined("n1")]})
    scene.reconcile()
    scene.reconcile(after=2.0)
    return scene


def reason(scene: StatusScene) -> str:
    condition = scene.condition()
    return condition.reason if condition else ""


def notes(scene: StatusScene) -> list[tuple[str, str]]:
    found = sorted(scene.events(), key=lambda event: int(event["metadata"]["resourceVersion"]))
    return [(event["type"], event["reason"]) for event in found]


def test_the_condition_is_an_annotation_with_its_figures() -> None:
    scene = ready_scene()
    condition = scene.condition()
    assert condition is not None
    assert (condition.type, condition.status, condition.reason) == ("MNNVLReady", "True", "AllNodesReady")
    assert (condition.expected, condition.joined, condition.ready, list(condition.cliques)) == (1, 1, 1, [CLIQUE])


def test_a_domain_that_gkm_created_needs_no_write_until_a_pod_uses_it() -> None:
    annotations = {"gkm.io/pods-using": "0", "gkm.io/mnnvl-ready": unused("2026-01-01T00:00:00Z").text()}
    scene = StatusScene(annotations=annotations)
    assert [scene.reconcile(after=seconds) for seconds in (0.0, 2.0, 15.0, 60.0)] == [None] * 4
    assert scene.writes() == []


def test_the_start_of_a_domain_is_one_normal_event() -> None:
    scene = StatusScene()
    scene.reconcile()
    scene.reconcile(after=2.0)
    assert reason(scene) == "WaitingForPods"
    scene.put(used("a"))
    scene.reconcile()
    scene.reconcile(after=2.0)
    scene.put(used("a", "n1"))
    scene.reconcile(after=2.0)
    assert (reason(scene), notes(scene)) == ("NodesNotReady", [])
    scene.change_domain(status={"nodes": [joined("n1")]})
    scene.reconcile(after=2.0)
    assert notes(scene) == [("Normal", "MNNVLReady")]


def test_the_end_of_readiness_is_a_warning_with_its_reason() -> None:
    scene = ready_scene()
    scene.change_domain(status={"nodes": [joined("n1", "NotReady")]})
    scene.reconcile(after=2.0)
    assert notes(scene) == [("Normal", "MNNVLReady"), ("Warning", "MNNVLNotReady")]
    assert scene.events()[-1]["note"].startswith("NodesNotReady: ComputeDomain training: 1 of 1 node")


def test_a_workload_that_ends_is_no_warning() -> None:
    scene = ready_scene()
    scene.remove(used("a"))
    scene.reconcile(after=2.0)
    assert (reason(scene), notes(scene)) == ("WaitingForPods", [("Normal", "MNNVLReady")])


def test_a_cause_that_does_not_pass_is_a_warning_once() -> None:
    scene = StatusScene()
    scene.put(used("a", "n1"), used("b", "n2"))
    scene.change_domain(status={"nodes": [joined("n1", clique="", index=-1)]})
    scene.reconcile()
    scene.reconcile(after=2.0)
    scene.change_domain(status={"nodes": [joined("n1", clique="", index=-1), joined("n2")]})
    scene.reconcile(after=2.0)
    assert (reason(scene), notes(scene)) == ("NodesIsolated", [("Warning", "MNNVLNotReady")])


def test_a_template_that_pods_wait_for_is_missing_after_half_a_minute() -> None:
    """NVIDIA's controller needs a moment for it, and no change of an object reports that it does not come."""
    scene = StatusScene(template=False)
    scene.reconcile()
    scene.reconcile(after=2.0)
    assert reason(scene) == "WaitingForPods"
    scene.put(used("a"))
    scene.reconcile()
    assert (reason(scene), notes(scene)) == ("PodsPending", [])
    assert scene.reconcile() == 28.0
    scene.reconcile(after=28.0)
    assert (reason(scene), notes(scene)) == ("TemplateMissing", [("Warning", "MNNVLNotReady")])


def test_a_new_leader_does_not_forget_that_the_template_is_missing() -> None:
    scene = StatusScene(template=False)
    scene.put(used("a"))
    scene.reconcile()
    scene.reconcile(after=30.0)
    assert reason(scene) == "TemplateMissing"
    scene.restart()
    scene.put(used("a"))
    scene.reconcile()
    scene.reconcile(after=2.0)
    assert reason(scene) == "TemplateMissing"


@pytest.mark.parametrize(("owners", "kind"), [([OWNER], "PodCliqueSet"), ([], "ComputeDomain")])
def test_events_regard_the_set_that_controls_the_domain_or_the_domain(owners: list[Json], kind: str) -> None:
    scene = ready_scene(ownerReferences=owners)
    assert [event["regarding"]["kind"] for event in scene.events()] == [kind]


def test_a_lost_domain_says_so_and_its_successor_names_the_pods_to_restart() -> None:
    scene = ready_scene(finalizers=["someone"])
    scene.change_domain(metadata={"deletionTimestamp": "2026-01-03T00:00:00Z"})
    scene.reconcile(after=2.0)
    assert (reason(scene), notes(scene)[-1]) == ("DomainTerminating", ("Warning", "MNNVLNotReady"))
    scene.api.delete(TEMPLATES, NAME, "team")
    scene.reconcile(after=2.0)
    assert (reason(scene), notes(scene)[-1]) == ("DomainLost", ("Warning", "MNNVLNotReady"))
    scene.change_domain(metadata={"finalizers": []})
    assert scene.condition() is None
    assert scene.reconcile() is None
    scene.put_domain(domain_json(uid="second", created="2026-01-03T00:00:01Z"))
    scene.api.create(TEMPLATES, template_json(uid="second"))
    scene.reconcile()
    assert scene.mark() == scene.mark(TEMPLATES) == ("1", "a")
    scene.reconcile(after=2.0)
    assert reason(scene) == "DomainLost"
    scene.put(used("a", "n1", created="2026-01-03T00:01:00Z", started="2026-01-03T00:01:01Z"))
    scene.change_domain(status={"nodes": [joined("n1")]})
    scene.reconcile(after=2.0)
    assert reason(scene) == "AllNodesReady"


def test_a_domain_that_gkm_released_is_marked_for_its_last_pods_and_no_more() -> None:
    labels = {"gkm.io/written-by": "gkm"}
    scene = StatusScene(labels=labels, finalizers=["resource.nvidia.com/computeDomain"])
    scene.put(used("a"))
    scene.change_domain(metadata={"deletionTimestamp": "2026-01-03T00:00:00Z"})
    scene.reconcile()
    scene.reconcile(after=2.0)
    assert scene.mark() == ("1", "a")
    assert (scene.condition(), scene.events()) == (None, [])


def test_a_refused_write_is_retried_and_then_says_what_is_true_by_then() -> None:
    scene = StatusScene()
    scene.put(used("a"))
    scene.api.fault = lambda verb, _: ApiError(500, "InternalError", "etcd is away") if verb == "merge" else None
    with pytest.raises(ApiError, match="etcd is away"):
        scene.reconcile()
    scene.put(used("b"))
    scene.api.fault = lambda _verb, _plural: None
    scene.reconcile()
    assert scene.mark() == ("2", "a, b")


def test_a_domain_that_vanishes_before_the_write_is_no_error() -> None:
    scene = StatusScene()
    scene.put(used("a"))
    scene.api.fault = lambda verb, _: ApiError(404, "NotFound", "gone") if verb == "merge" else None
    assert scene.reconcile() == 0.0
    assert scene.reconcile() == 2.0


def states() -> dict[str, float]:
    samples = next(iter(metrics.COMPUTEDOMAINS.collect())).samples
    return {sample.labels["state"]: sample.value for sample in samples if sample.value}


def test_the_metric_counts_domains_by_state() -> None:
    metrics.COMPUTEDOMAINS.clear()  # other tests have domains, too
    scene = ready_scene()
    assert states() == {"ready": 1}
    scene.change_domain(status={"nodes": []})
    scene.reconcile(after=0.1)  # before the write, which waits
    assert states() == {"notReady": 1}
    scene.remove(used("a"))
    scene.reconcile()
    assert states() == {"waiting": 1}
    scene.api.delete(DOMAINS, NAME, "team")
    scene.reconcile()
    assert states() == {}


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningStatus]:
    monkeypatch.setattr("gkm_operator.computedomains.status.controller.SETTLE_SECONDS", 0.01)
    monkeypatch.setattr("gkm_operator.computedomains.status.controller.TEMPLATE_SECONDS", 0.01)
    made = RunningStatus()
    yield made
    made.close()


def test_every_watch_moves_the_condition_on(site: RunningStatus) -> None:
    """From the creation of a domain to its readiness, by one object after the other."""
    site.store(DOMAINS, domain_json())
    site.start()
    steps: list[tuple[Callable[[], object], str]] = [
        (lambda: site.store(TEMPLATES, template_json()), "WaitingForPods"),
        (lambda: site.store(PODCLIQUES, clique_json("workers", 2)), "PodsPending"),
        (lambda: site.store(PODS, pod("late", 8, domain=NAME)), "ClaimMissing"),
        (lambda: site.api.delete(PODS, "late", "team"), "PodsPending"),
        (lambda: site.store(NODES, node_json("n1", held_by="uid-of-another")), "PodsPending"),
        (lambda: site.store(PODS, used("a", "n1")), "NodeTaken"),
        (lambda: site.store(NODES, node_json("n1")), "PodsPending"),
        (lambda: site.store(PODCLIQUES, clique_json("workers", 1)), "NodesNotReady"),
        (lambda: site.store(DOMAINS, domain_json(NAME, joined("n1"))), "AllNodesReady"),
        (lambda: site.api.delete(PODCLIQUES, "workers", "team"), "AllNodesReady"),
        (lambda: site.api.delete(TEMPLATES, NAME, "team"), "TemplateMissing"),
        (lambda: site.api.delete(PODS, "a", "team"), "WaitingForPods"),
    ]
    site.until("WaitingForPods")
    for step, reached in steps:
        step()
        site.until(reached)


def test_the_last_pod_of_a_domain_that_is_gone_takes_the_mark_with_it(site: RunningStatus) -> None:
    orphan = template_json()
    orphan["metadata"]["annotations"] = {"gkm.io/pods-using": "1"}
    site.store(TEMPLATES, orphan)
    site.store(PODS, used("a"))
    site.start()
    site.api.delete(PODS, "a", "team")

    def marks() -> str:
        found = site.api._objects["resourceclaimtemplates", "team", NAME]
        return str(found["metadata"]["annotations"]["gkm.io/pods-using"])

    until(lambda: marks() == "0", "the mark to fall")


def test_a_new_leader_marks_what_pods_use_before_it_started(site: RunningStatus) -> None:
    site.store(DOMAINS, domain_json())
    site.store(TEMPLATES, template_json())
    site.store(PODS, used("a"))
    site.start()
    until(lambda: site.annotation("gkm.io/pods-using"), "a mark")
    assert site.annotation("gkm.io/pods-using") == "1"


def test_a_changed_mode_of_imex_decides_a_domain_again() -> None:
    scene = StatusScene()
    scene.put(used("a", "n1", phase="Running"))
    scene.reconcile(after=60.0)
    assert reason(scene) == "NodesNotReady"
    scene.status.imex_changed(IMEXMode.HOST_MANAGED)
    scene.reconcile(after=60.0)
    assert reason(scene) == "AllNodesReady"
    scene.status.imex_changed(IMEXMode.DRIVER_MANAGED)
    scene.reconcile(after=60.0)
    assert reason(scene) == "NodesNotReady"
