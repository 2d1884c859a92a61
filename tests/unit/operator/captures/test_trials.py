"""A generation that makes pods fail more often than the one before it is held back, and not for what others cause."""

from datetime import timedelta
from typing import Any

import pytest
from gkm.api.caches import HELD_BACK
from gkm.api.config import CapturedCaches
from gkm.api.meta import timestamp
from gkm.api.nodes import CapturedImage
from gkm.kube.resources import CLUSTERGKMCACHENODES, CLUSTERGKMCACHES, GKMCACHENODES, GKMCACHES, Json, Resource
from gkm_operator.captures.trials import CHECK_SECONDS, LEAST_PODS, TRIAL_SECONDS, Tally, is_worse
from gkm_operator.metrics import GENERATIONS_HELD_BACK
from support.operator.captures import NAMESPACE, NOW, CapturesProcess, CapturesWorld, of_family

PODS: Resource[Json] = Resource("v1", "Pod", "pods", namespaced=True, type=dict)
FIRST, SECOND, THIRD = of_family(1, age=30), of_family(2, base=1, age=20), of_family(3, base=2, age=10)


@pytest.mark.parametrize(
    ("newer", "older", "worse"),
    [
        ((3, 3), (0, 0), True),
        ((3, 100), (0, 50), True),
        ((2, 2), (0, 10), False),
        ((3, 3), (4, 40), False),
        ((5, 50), (4, 40), False),
        ((5, 49), (4, 40), True),
        ((3, 0), (0, 0), True),
        ((3, 3), (3, 3), False),
    ],
)
def test_enough_pods_and_a_larger_share_than_before(
    newer: tuple[int, int], older: tuple[int, int], *, worse: bool
) -> None:
    assert is_worse(Tally(*newer), Tally(*older)) is worse


class Trial:
    """Generations, two by default, and pods that use them; a process checks them."""

    def __init__(self, *captures: CapturedImage, cluster: bool = False) -> None:
        captures = captures or (FIRST, SECOND)
        settings = CapturedCaches(cluster_namespaces=[NAMESPACE] if cluster else [])
        self.world = CapturesWorld(settings)
        self.cluster = cluster
        self.resource: Resource[Any] = CLUSTERGKMCACHES if cluster else GKMCACHES
        self.where = None if cluster else NAMESPACE
        for number in range(1, len(captures) + 1):
            self.world.announce("node-1", *captures[:number])
            CapturesProcess(self.world).run(2)
        for each in captures:
            image = each.image
            verdict = {"type": "Verified", "status": "True", "reason": "x", "message": "", "lastTransitionTime": ""}
            status = {"image": image, "resolvedDigest": image.partition("@")[2], "conditions": [verdict]}
            self.status(each.name, status)
            self.merge(each.name, {"metadata": {"creationTimestamp": timestamp(NOW)}})
        self.process = CapturesProcess(self.world)
        self.mounts: dict[str, dict[str, list[Json]]] = {}

    def merge(self, name: str, patch: Json) -> None:
        self.world.api.merge(self.resource, name, patch, self.where)

    def status(self, name: str, status: Json) -> None:
        self.world.api.merge(self.resource, name, {"status": status}, self.where, subresource="status")

    def use(self, name: str, pods: int) -> None:
        self.status(name, {"podsUsing": pods})

    def fail(
        self,
        capture: str,
        count: int,
        *,
        node: str = "node-a",
        seconds: float = 20,
        namespace: str = NAMESPACE,
        **pod: Any,  # noqa: ANN401 -- any fault
    ) -> None:
        """Make pods that mount a generation, each with a container that ended with an error."""
        for number in range(count):
            name = f"{capture[-4:]}-{node}-{number}"
            self.mounts.setdefault(node, {}).setdefault(capture, []).append({"namespace": namespace, "name": name})
            ended = {
                "exitCode": pod.get("code", 1),
                "startedAt": timestamp(NOW),
                "finishedAt": timestamp(NOW + timedelta(seconds=seconds)),
            }
            metadata = {"name": name, "namespace": namespace, "finalizers": ["test/stays"]}
            value = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": node}}
            status = {"containerStatuses": [{"lastState": {"terminated": ended}}]}
            self.world.api.create(PODS, value)
            self.world.api.merge(PODS, name, {"status": status}, namespace, subresource="status")
            if pod.get("deleted"):
                self.world.api.delete(PODS, name, namespace)
        kind = CLUSTERGKMCACHENODES if self.cluster else GKMCACHENODES
        caches = {name: {"state": "Ready", "pods": pods} for name, pods in self.mounts[node].items()}
        meta = {"name": node} | ({} if self.cluster else {"namespace": NAMESPACE})
        report = {"apiVersion": "gkm.io/v1alpha1", "kind": kind.kind, "metadata": meta, "spec": {"nodeName": node}}
        self.world.api.apply(kind.of(dict), report, field_manager="agent")
        self.world.api.apply(
            kind.of(dict), report | {"status": {"caches": caches}}, field_manager="a", subresource="status"
        )

    def check(self) -> tuple[str, str] | None:
        """Let a minute pass, and the process check; return the condition of the newer generation."""
        self.process.seconds += CHECK_SECONDS
        self.process.run(2)
        return self.condition()

    def condition(self) -> tuple[str, str] | None:
        return self.process.condition(SECOND.name, self.where, HELD_BACK)

    def hold(self, name: str = SECOND.name) -> None:
        """Write what the controller of caches writes of a verdict."""
        held = {"type": HELD_BACK, "status": "True", "reason": "PodsFailed", "message": "", "lastTransitionTime": ""}
        known = self.world.api.get(self.resource.of(dict), name, self.where)["status"]["conditions"]
        self.status(name, {"conditions": [*known, held]})


@pytest.mark.parametrize("cluster", [False, True], ids=["GKMCache", "ClusterGKMCache"])
def test_a_generation_that_makes_three_pods_fail_is_held_back(*, cluster: bool) -> None:
    trial = Trial(cluster=cluster)
    trial.use(SECOND.name, 4)
    assert trial.check() is None
    trial.fail(SECOND.name, 2)
    assert trial.check() is None
    trial.fail(SECOND.name, 1, node="node-b")
    assert trial.check() == ("True", "PodsFailed")
    assert trial.process.refreshed[-1].name == SECOND.name  # type: ignore[attr-defined]


def test_generations_that_are_held_back_are_counted() -> None:
    trial = Trial(FIRST, SECOND, THIRD)

    def held() -> float:
        trial.process.run(2)
        value: float = GENERATIONS_HELD_BACK._value.get()
        return value

    assert held() == 0
    trial.hold(SECOND.name)
    trial.hold(THIRD.name)
    assert held() == 2
    trial.merge(THIRD.name, {"spec": {"pinned": True}})
    assert held() == 1


@pytest.mark.parametrize(
    "pod",
    [
        {"code": 0},
        {"seconds": 601.0},
        {"deleted": True},
        {"namespace": "others"},
    ],
    ids=["without an error", "later", "deleted", "of another namespace"],
)
def test_a_pod_that_says_nothing_about_the_generation_does_not_count(pod: Json) -> None:
    for cluster in (False, True):
        trial = Trial(cluster=cluster)
        trial.use(SECOND.name, 4)
        trial.fail(SECOND.name, 4, **pod)
        assert trial.check() is None


def test_a_pod_that_fails_with_another_cache_does_not_count() -> None:
    trial = Trial()
    trial.use(SECOND.name, 4)
    trial.fail("llama-by-hand", 4)
    assert trial.check() is None


def test_a_node_that_names_pods_of_other_nodes_holds_nothing_back() -> None:
    trial = Trial()
    trial.use(SECOND.name, 4)
    trial.fail("llama-by-hand", 4)
    trial.mounts["stolen"] = {SECOND.name: trial.mounts["node-a"]["llama-by-hand"]}
    trial.fail(SECOND.name, 1, node="stolen")
    assert trial.check() is None


def test_pods_that_fail_as_often_with_the_generation_before_are_no_fault_of_it() -> None:
    trial = Trial()
    trial.use(SECOND.name, 4)
    trial.use(FIRST.name, 4)
    trial.fail(SECOND.name, 4)
    trial.fail(FIRST.name, 4, node="node-b")
    assert trial.check() is None


def test_the_first_generation_is_never_held_back() -> None:
    trial = Trial()
    trial.world.announce("node-1")
    trial.world.api.delete(GKMCACHES, SECOND.name, NAMESPACE)
    trial.use(FIRST.name, 4)
    trial.fail(FIRST.name, 4)
    trial.process.run()
    assert trial.process.condition(FIRST.name, kind=HELD_BACK) is None


def test_it_is_free_again_when_the_one_before_it_fails_too_and_stays_so() -> None:
    trial = Trial()
    trial.use(SECOND.name, 4)
    trial.fail(SECOND.name, 4)
    assert trial.check() == ("True", "PodsFailed")
    trial.hold()
    trial.use(FIRST.name, 4)
    trial.fail(FIRST.name, 4, node="node-b")
    assert trial.check() == ("False", "NotWorse")
    trial.use(FIRST.name, 0)
    assert trial.check() == ("False", "NotWorse")


def test_a_generation_on_top_of_a_bad_one_is_not_free_because_that_fails_too() -> None:
    trial = Trial(FIRST, SECOND, THIRD)
    trial.use(THIRD.name, 4)
    trial.fail(THIRD.name, 4)
    trial.check()
    assert trial.process.condition(THIRD.name, kind=HELD_BACK) == ("True", "PodsFailed")
    trial.hold(THIRD.name)
    trial.use(SECOND.name, 4)
    trial.fail(SECOND.name, 4, node="node-b")
    assert trial.check() == ("True", "PodsFailed")
    assert trial.process.condition(THIRD.name, kind=HELD_BACK) == ("True", "PodsFailed")


def test_a_process_that_starts_frees_it_only_for_a_reason() -> None:
    trial = Trial()
    trial.hold()
    trial.use(FIRST.name, 4)
    assert trial.check() is None
    trial.fail(FIRST.name, LEAST_PODS - 1)
    assert trial.check() is None
    trial.fail(FIRST.name, 1, node="node-b")
    assert trial.check() == ("False", "NotWorse")


def test_whoever_pins_it_takes_the_verdict_back() -> None:
    trial = Trial()
    trial.use(SECOND.name, 4)
    trial.fail(SECOND.name, 4)
    assert trial.check() == ("True", "PodsFailed")
    trial.hold()
    trial.merge(SECOND.name, {"spec": {"pinned": True}})
    assert trial.condition() == ("False", "Pinned")
    assert trial.check() == ("False", "Pinned")


def test_the_newest_generation_that_is_not_held_back_does_not_end() -> None:
    trial = Trial()
    trial.hold()
    trial.world.settings = CapturedCaches(versions=1)
    CapturesProcess(trial.world).run()
    assert trial.world.generations() == {FIRST.name: 1, SECOND.name: 2}


def test_pods_are_listed_once_a_minute_and_during_a_trial_only() -> None:
    trial = Trial()
    lists: list[str] = []

    def around(call: Any, send: Any) -> Any:  # noqa: ANN401 -- any answer
        lists.extend([call.verb] if call.plural == "pods" else [])
        return send()

    trial.process = CapturesProcess(trial.world, around)
    trial.check()
    assert lists == []
    trial.use(SECOND.name, 3)
    trial.process.run(5)
    assert len(lists) == 1
    trial.check()
    assert len(lists) == 2
    trial.process.seconds += TRIAL_SECONDS
    trial.check()
    assert len(lists) == 2
    trial.world.now = NOW + timedelta(days=2)
    trial.process = CapturesProcess(trial.world, around)
    trial.check()
    assert len(lists) == 2
