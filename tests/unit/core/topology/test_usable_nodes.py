"""The nodes that a run may use, and their free GPUs."""

import hashlib
from random import Random

import pytest
import rfc8785
from gkm.api.runs import RunScope, RunSelector, Toleration
from gkm.api.topology_settings import Topology
from gkm.packing.usable_nodes import Overcommitted, UsableNodes, usable_nodes, version
from gkm.packing.values import Location
from gkm.packing.values import Node as UsableNode
from gkm.topology.eligibility import Exclusion, NodeDemand
from gkm.topology.nodes import KubeNodeStatus, Node, NodeCondition
from gkm.topology.pods import Pod
from gkm.topology.quarantine import QuarantineReason
from gkm.topology.survey import survey_nodes
from gkm.topology.usage import Usage, usage
from hypothesis import given
from hypothesis import strategies as st
from support.topology.kube_lists import container, node, pod

Row = list[str | int | list[str]]
H100 = {"gpu.flavor": "h100"}
TAINT = {"key": "team", "value": "x", "effect": "NoSchedule"}


def of(nodes: list[Node], demand: NodeDemand | None = None, used: Usage | None = None) -> UsableNodes:
    return usable_nodes(survey_nodes(nodes, Topology()), used or Usage(), demand or NodeDemand("h100"))


def why(found: UsableNodes) -> dict[str, Exclusion]:
    return {entry.node: entry.why for entry in found.excluded}


def test_gpus_of_pods_and_plans_are_not_free() -> None:
    snapshot = survey_nodes([node("n1", H100), node("n2", H100)], Topology())
    used = usage([pod("p1", "n1", container("3"))])

    found = usable_nodes(snapshot, used, NodeDemand("h100"), held={"n1": 1, "n2": 2, "gone": 8})

    assert [(entry.name, entry.total, entry.free) for entry in found.nodes] == [("n1", 8, 4), ("n2", 8, 6)]


def test_an_overcommitted_node_has_no_free_gpus_and_is_reported() -> None:
    found = of([node("n1", H100, "4")], used=usage([pod("p1", "n1", container("8"))]))

    assert [entry.free for entry in found.nodes] == [0]
    assert found.overcommitted == (Overcommitted("n1", taken=8, total=4),)


def test_a_node_with_a_pod_of_invalid_quantity_is_quarantined() -> None:
    found = of([node("n1", H100), node("n2", H100)], used=usage([pod("p1", "n1", container("NaN"))]))

    assert [entry.name for entry in found.nodes] == ["n2"]
    assert [(entry.node, entry.why) for entry in found.quarantined] == [("n1", QuarantineReason.POD_INVALID)]


@pytest.mark.parametrize(
    ("excluded", "reason"),
    [
        (node("n1", H100, "0"), Exclusion.NO_GPUS),
        (node("n1", H100, None), Exclusion.NO_GPUS),
        (node("n1", {"gpu.flavor": "a100"}), Exclusion.FLAVOR),
        (node("n1"), Exclusion.FLAVOR),
        (node("n1", H100, unschedulable=True), Exclusion.CORDONED),
        (node("n1", H100 | {"gkm.io/fabric-health": "unhealthy"}), Exclusion.FABRIC_UNHEALTHY),
        (node("n1", H100, taints=[TAINT]), Exclusion.TAINTED),
    ],
)
def test_a_node_that_a_run_cannot_use_is_excluded_with_the_reason(excluded: Node, reason: Exclusion) -> None:
    found = of([excluded, node("n2", H100)])

    assert [entry.name for entry in found.nodes] == ["n2"]
    assert why(found) == {"n1": reason}
    assert found.counts == {reason: 1}


@pytest.mark.parametrize("health", ["healthy", "degraded", "none"])
def test_a_node_of_another_health_is_used(health: str) -> None:
    assert of([node("n1", H100 | {"gkm.io/fabric-health": health})]).nodes


@pytest.mark.parametrize(
    "conditions", [None, (), (NodeCondition("Ready", "False"),), (NodeCondition("Ready", "Unknown"),)]
)
def test_a_node_without_a_ready_condition_is_excluded(conditions: tuple[NodeCondition, ...] | None) -> None:
    ready = node("n1", H100)
    other = Node(ready.metadata, ready.spec, KubeNodeStatus(ready.status.allocatable, conditions))

    assert why(of([other])) == {"n1": Exclusion.NOT_READY}


def test_a_tolerated_taint_excludes_no_node() -> None:
    demand = NodeDemand("h100", tolerations=(Toleration("team", "Exists"),))

    assert of([node("n1", H100, taints=[TAINT])], demand).nodes


def test_the_flavor_is_compared_without_regard_to_case() -> None:
    assert of([node("n1", {"nvidia.com/gpu.product": "NVIDIA-H100"})], NodeDemand("nvidia-h100")).nodes
    assert of([node("n1", {"gkm.io/gpu-flavor": "nvidia-h100"})], NodeDemand("NVIDIA-H100")).nodes


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        (RunSelector(), {"n1", "n2"}),
        (RunSelector(region="eu"), {"n1"}),
        (RunSelector(region="default"), {"n2"}),
        (RunSelector(cluster="a"), {"n2"}),
        (RunSelector(region="eu", cluster="a"), set()),
        (RunSelector(labels={"tier": "gold"}), {"n1"}),
        (RunSelector(labels={"tier": "gold", "app": "x"}), set()),
    ],
)
def test_a_selector_matches_resolved_locations_and_raw_labels(selector: RunSelector, selected: set[str]) -> None:
    nodes = [node("n1", H100 | {"region": "eu", "tier": "gold"}), node("n2", H100 | {"cluster": "a"})]

    found = of(nodes, NodeDemand("h100", selector))

    assert {entry.name for entry in found.nodes} == selected
    assert set(why(found).values()) <= {Exclusion.SELECTOR}


def test_a_node_has_all_matching_scopes_and_is_excluded_without_one() -> None:
    scopes = (
        RunScope("gold", 8, RunSelector(labels={"tier": "gold"})),
        RunScope("eu", 8, RunSelector(region="eu")),
    )
    nodes = [node("n1", H100 | {"region": "eu", "tier": "gold"}), node("n2", H100 | {"region": "eu"}), node("n3", H100)]

    found = of(nodes, NodeDemand("h100", scopes=scopes))

    assert {entry.name: entry.scopes for entry in found.nodes} == {"n1": {"gold", "eu"}, "n2": {"eu"}}
    assert why(found) == {"n3": Exclusion.SCOPE}


def test_two_scopes_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="several scopes have the name 'gold'"):
        NodeDemand("h100", scopes=(RunScope("gold", 8, RunSelector()), RunScope("gold", 8, RunSelector(region="eu"))))


def test_of_several_exclusions_those_by_the_request_come_first() -> None:
    assert why(of([node("n1", {"gpu.flavor": "a100"}, unschedulable=True)])) == {"n1": Exclusion.FLAVOR}


def test_a_version_is_the_hash_of_canonical_json() -> None:
    one = UsableNode("n1", Location("eu", "a", "b1", "d1"), 8, 4, frozenset({"y", "x"}))

    row: Row = ["n1", "eu", "a", "b1", "d1", 8, 4, ["x", "y"]]
    assert version([one]) == hashlib.sha256(rfc8785.dumps([row])).hexdigest()


def test_a_version_changes_with_free_gpus_only() -> None:
    nodes = [node("n1", H100), node("n2", H100)]
    idle = of(nodes)

    assert of([*nodes, node("cpu", gpus=None)]).version == idle.version
    assert of([nodes[1], nodes[0]]).version == idle.version
    assert of(nodes, used=usage([pod("p1", "n1", container("1"))])).version != idle.version


def test_no_nodes_have_a_version_too() -> None:
    assert of([]) == UsableNodes((), hashlib.sha256(b"[]").hexdigest())


LABELS = st.fixed_dictionaries(
    {},
    optional={
        "region": st.sampled_from(["eu", "us"]),
        "fabric.domain": st.sampled_from(["d1", "d2"]),
        "rack": st.sampled_from(["r1", "a b"]),
        "block": st.sampled_from(["b1", "b2"]),
        "gpu.flavor": st.sampled_from(["h100", "a100"]),
        "gkm.io/fabric-health": st.sampled_from(["healthy", "unhealthy"]),
    },
)
NAMES = [f"n{number}" for number in range(6)]
NODES = st.lists(
    st.builds(
        node,
        st.sampled_from(NAMES),
        LABELS,
        st.sampled_from([None, "0", "4", "8", "NaN"]),
        unschedulable=st.booleans(),
        taints=st.lists(st.just(TAINT), max_size=1),
    ),
    max_size=8,
)
PODS = st.lists(
    st.builds(
        lambda number, on, gpus: pod(f"p{number}", on, container(gpus)),
        st.integers(0, 5),
        st.sampled_from(NAMES),
        st.sampled_from(["0", "1", "8", "-1"]),
    ),
    max_size=6,
)
DEMANDS = st.sampled_from(
    [
        NodeDemand("h100"),
        NodeDemand("h100", RunSelector("eu"), tolerations=(Toleration(operator="Exists"),)),
        NodeDemand("h100", scopes=(RunScope("eu", 8, RunSelector("eu")), RunScope("all", 8, RunSelector()))),
        NodeDemand("h100", scopes=(RunScope("eu", 8, RunSelector("eu")),)),
    ]
)


@given(NODES, PODS, DEMANDS)
def test_every_node_is_used_excluded_or_quarantined_exactly_once(
    nodes: list[Node], pods: list[Pod], demand: NodeDemand
) -> None:
    found = of(nodes, demand, usage(pods))

    used = [entry.name for entry in found.nodes]
    others = [*(entry.node for entry in found.excluded), *(entry.node for entry in found.quarantined)]
    assert sorted([*used, *others]) == sorted(entry.name for entry in nodes)
    assert sum(found.counts.values()) == len(others)
    assert all(0 <= entry.free <= entry.total for entry in found.nodes)


@given(NODES, PODS, DEMANDS, st.integers())
def test_the_order_of_nodes_and_pods_does_not_matter(
    nodes: list[Node], pods: list[Pod], demand: NodeDemand, seed: int
) -> None:
    random = Random(seed)
    shuffled = random.sample(nodes, len(nodes)), usage(random.sample(pods, len(pods)))

    assert of(shuffled[0], demand, shuffled[1]) == of(nodes, demand, usage(pods))
