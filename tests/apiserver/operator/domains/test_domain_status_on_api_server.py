"""Marks, MNNVLReady and capacity on a real API server: the test writes what NVIDIA's parts, kubelet and users would."""

import json
import re
from itertools import count
from typing import Any

import pytest
from gkm.api.domain_capacity import parse_capacity
from gkm.api.domain_readiness import MNNVLReadiness, parse_readiness
from gkm.kube.client import connect
from gkm.kube.resources import NODES, Json
from support.cluster.gkm_objects import namespace
from support.cluster.objects import refusal
from support.grove.objects import compute_domain
from support.grove.observed import CLIQUE, clique_json, joined, node_json
from support.grove.pods import pod
from support.host import pages
from support.kube.our_kinds import CONTROLLERS
from support.operator.domain_cluster import NVIDIA, DomainCluster
from support.operator.domains import DOMAINS
from support.operator.nodes import put
from support.operator.plans import PODS

FIRST, SECOND = "status-n1", "status-n2"
NUMBERS = count(1)


class Scene:
    """A namespace with the ComputeDomain `training` of a user, who knows nothing of GKM."""

    def __init__(self, place: DomainCluster) -> None:
        self.place = place
        self.api = connect(str(place.cluster.kubeconfig))
        self.team = f"status-{next(NUMBERS)}"
        place.cluster.apply(namespace(self.team))
        place.cluster.apply(compute_domain("training", namespace=self.team))

    def pod(self, name: str, node: str = "", **fields: Any) -> None:  # noqa: ANN401 -- JSON
        """Create a pod that uses the domain, as it is once kubelet has accepted it."""
        made = pod(name, node=node, namespace=self.team, **({"template": "training", "phase": "Running"} | fields))
        for key in ("uid", "creationTimestamp"):
            del made["metadata"][key]
        made["status"].pop("startTime", None)
        put(self.api, PODS, made)

    def remove(self, name: str) -> None:
        self.place.cluster.objects.delete_named("pod", name, self.team)

    def join(self, *nodes: Json) -> None:
        """Write the status of the domain."""
        made = compute_domain("training", namespace=self.team)
        made["metadata"].pop("labels")
        put(self.api, DOMAINS, made | {"status": {"status": "Ready", "nodes": list(nodes)}})

    def condition(self) -> MNNVLReadiness | None:
        annotations = self.place.domain("training", self.team).get("annotations", {})
        return parse_readiness(annotations.get("gkm.io/mnnvl-ready"))

    def until(self, reason: str, seconds: float = 60.0) -> MNNVLReadiness:
        def reached() -> MNNVLReadiness | None:
            found = self.condition()
            return found if found is not None and found.reason == reason else None

        return self.place.cluster.until(reached, f"the reason {reason}, not {self.condition()}", seconds)

    def until_message(self, part: str) -> None:
        """Wait until the message of the condition has a part."""
        found = {"message": ""}

        def reached() -> bool:
            condition = self.condition()
            found["message"] = condition.message if condition else ""
            return part in found["message"]

        self.place.cluster.until(reached, f"the message {part}, not {found}")

    def until_marked(self, mark: str) -> None:
        kinds = ("computedomain", "resourceclaimtemplate")
        marks = dict.fromkeys(kinds, "")

        def marked() -> bool:
            marks.update({kind: self.place.mark(kind, "training", self.team) for kind in kinds})
            return set(marks.values()) == {mark}

        self.place.cluster.until(marked, f"both marks to be {mark}, not {marks}")

    def patches(self) -> int:
        """The patches of the controllers in the namespace so far."""
        requests = self.place.audit.requests()
        return sum((one.user, one.verb, one.namespace) == (CONTROLLERS, "patch", self.team) for one in requests)

    def counts_a_ready_domain(self) -> bool:
        page = pages.fetch(self.place.health[1], "metrics")[1]
        return bool(re.search(r'gkm_computedomains{state="ready"} [1-9]', page))

    def events(self) -> list[str]:
        return [reason for reason, _ in self.place.events(self.team) if reason.startswith("MNNVL")]


@pytest.fixture
def scene(place: DomainCluster) -> Scene:
    return Scene(place)


def test_the_life_of_a_domain_in_its_condition_and_marks(scene: Scene) -> None:
    scene.until("WaitingForPods")
    scene.place.make_template("training", scene.team)
    scene.place.cluster.apply(clique_json("workers", 2) | {"metadata": {"name": "workers", "namespace": scene.team}})
    scene.pod("a", phase="Pending")
    scene.until_marked("1")
    # The watch of PodCliques may show the second pod later.
    scene.until_message("0 of 2 pods run on a node; pending: a")
    assert scene.until("PodsPending").message == "0 of 2 pods run on a node; pending: a"
    scene.remove("a")
    for name, node in (("a", FIRST), ("b", SECOND)):
        scene.pod(name, node)
    scene.until("NodesNotReady")
    scene.join(joined(FIRST), joined(SECOND, "NotReady"))
    scene.join(joined(FIRST), joined(SECOND))
    ready = scene.until("AllNodesReady")
    assert (ready.status, ready.expected, ready.joined, ready.ready) == ("True", 2, 2, 2)
    assert list(ready.cliques) == [CLIQUE]
    scene.until_marked("2")
    objects, domain = scene.place.cluster.objects, ("computedomain", "training", scene.team)
    assert "is used by 2 pods (a, b)" in refusal(lambda: objects.ask_to_delete(*domain))
    scene.place.cluster.until(scene.counts_a_ready_domain, "the metric")

    scene.join(joined(FIRST), joined(SECOND, clique="", index=-1))
    assert scene.until("NodesIsolated").isolated == (SECOND,)
    scene.place.cluster.until(lambda: scene.events() == ["MNNVLNotReady", "MNNVLReady"], "both events")

    for name in ("a", "b"):
        scene.remove(name)
    objects.ask_to_delete("podclique", "workers", scene.team)
    scene.until_marked("0")
    scene.until("WaitingForPods")
    objects.ask_to_delete(*domain)
    scene.place.cluster.until(lambda: not scene.place.domain("training", scene.team), "the domain to be gone")


def test_a_domain_that_is_deleted_in_spite_of_its_pods_serves_until_they_end(scene: Scene) -> None:
    nvidia = {"metadata": {"finalizers": ["resource.nvidia.com/computeDomain"]}}
    scene.api.merge(DOMAINS, "training", nvidia, scene.team)
    scene.place.make_template("training", scene.team)
    scene.pod("a", FIRST)
    scene.until_marked("1")
    objects = scene.place.cluster.objects
    objects.as_user(CONTROLLERS).ask_to_delete("computedomain", "training", scene.team)
    scene.until("DomainTerminating")
    dra, template = objects.as_user(NVIDIA), ("resourceclaimtemplate", "training", scene.team)
    assert "is used by 1 pod" in refusal(lambda: dra.ask_to_delete(*template))
    scene.remove("a")
    scene.until_marked("0")
    dra.ask_to_delete(*template)
    scene.api.merge(DOMAINS, "training", {"metadata": {"finalizers": None}}, scene.team)


def test_a_node_of_another_domain_shows_the_names_of_its_own_namespace_only(scene: Scene) -> None:
    other = Scene(scene.place)
    scene.place.cluster.apply(compute_domain("inference", namespace=scene.team))
    scene.place.make_template("training", scene.team)
    scene.pod("a", FIRST)
    for name, team, shown in (
        ("training", other.team, "one of another namespace"),
        ("inference", scene.team, "inference"),
    ):
        put(scene.api, NODES, node_json(FIRST, held_by=scene.place.domain(name, team)["uid"]))
        scene.until_message(f"{FIRST} ({shown})")
    assert other.team not in scene.until("NodeTaken").message
    put(scene.api, NODES, node_json(FIRST))
    scene.until("NodesNotReady")


def test_what_changes_all_the_time_is_written_seldom(scene: Scene) -> None:
    scene.place.make_template("training", scene.team)
    for number in range(8):
        scene.pod(f"p{number}", (FIRST, SECOND)[number % 2])
    scene.until("NodesNotReady")
    for number in range(40):
        scene.join(*(joined(name, "NotReady") for name in (FIRST, SECOND)[: number % 2 + 1]))
        put(scene.api, NODES, node_json(SECOND, gkm__io___checked=str(number)))
    scene.join(joined(FIRST), joined(SECOND))
    scene.until("AllNodesReady")
    scene.until_marked("8")
    assert 0 < scene.patches() < 20


def test_the_capacity_follows_the_nodes(scene: Scene) -> None:
    names = [f"capacity-{number}" for number in range(3)]

    def free(clique: str = "capacity.1") -> tuple[int, int]:
        data = scene.place.cluster.objects.get("configmap", "gkm-domains", "gkm-system").get("data", {})
        found = [one for one in parse_capacity(data.get("capacity", "{}")).cliques if one.name == clique]
        return (found[0].nodes, found[0].free) if found else (0, 0)

    for name in names:
        put(scene.api, NODES, node_json(name, "capacity.1"))
    scene.place.cluster.until(lambda: free() == (3, 3), "three free nodes")
    scene.pod("busy", names[0], template="")
    scene.place.cluster.until(lambda: free() == (3, 2), "a node to be in use")
    for name in names[1:]:
        scene.place.cluster.objects.ask_to_delete("node", name)
    scene.place.cluster.until(lambda: free() == (1, 0), "removed nodes to vanish")
    assert json.loads(scene.place.cluster.objects.get("configmap", "gkm-domains", "gkm-system")["data"]["conditions"])
