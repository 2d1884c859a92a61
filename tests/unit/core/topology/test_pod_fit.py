"""Whether a pod of a run can start on a node: CPUs, memory and slots for pods, as the scheduler counts them."""

import pytest
from gkm.api.topology_settings import Topology
from gkm.packing.usable_nodes import UsableNodes, usable_nodes
from gkm.topology.eligibility import Exclusion, NodeDemand, PodDemand, startable_pods
from gkm.topology.locations import Location
from gkm.topology.nodes import KubeNodeMetadata, KubeNodeStatus, Node, Quantity, Resources, thousandths
from gkm.topology.pods import NodeLoad, Pod, requested_load
from gkm.topology.survey import LocatedNode, survey_nodes
from gkm.topology.usage import usage
from msgspec import convert
from support.topology.kube_lists import Json, node_json

GIB = 1000 << 30
NODE = Resources(gpus="8", cpu="90", memory="900Gi", pods="110")


def load(cpus: int = 0, gib: int = 0, pods: int = 0) -> NodeLoad:
    return NodeLoad(1000 * cpus, gib * GIB, pods)


@pytest.mark.parametrize(
    ("quantity", "number"),
    [(64, 64_000), ("64", 64_000), ("500m", 500), ("0.0001", 1), ("1Ki", 1_024_000), ("2e3", 2_000_000), ("0", 0)],
)
def test_quantities_are_exact_and_rounded_up(quantity: Quantity, number: int) -> None:
    assert thousandths(quantity, "CPUs") == number


@pytest.mark.parametrize("quantity", ["", "-1", -1, "x", "1 Gi", "1Q", "1e999"])
def test_what_is_no_quantity_is_an_error_that_names_what_it_should_be(quantity: Quantity) -> None:
    with pytest.raises(ValueError, match="is no number of CPUs"):
        thousandths(quantity, "CPUs")


def startable(taken: NodeLoad, pod: PodDemand, allocatable: Resources = NODE) -> int | tuple[Exclusion, str]:
    """Return how many pods can start on a node of 8 GPUs, or why none can and the numbers of that."""
    node = Node(KubeNodeMetadata("a"), status=KubeNodeStatus(allocatable))
    found = startable_pods(LocatedNode(node, Location("", "", "", ""), "h100", "", 8), taken, pod)
    return found if isinstance(found, int) else (found.why, found.detail)


def lacks(what: str, free: str, total: str, needed: str) -> tuple[Exclusion, str]:
    why = {
        "CPUs": Exclusion.INSUFFICIENT_CPU,
        "GiB of memory": Exclusion.INSUFFICIENT_MEMORY,
        "slots for pods": Exclusion.TOO_MANY_PODS,
    }
    return why[what], f"{free} of {total} {what} are free, and a pod needs {needed}"


@pytest.mark.parametrize(
    ("taken", "found"),
    [
        (load(), 8),
        (load(cpus=80), 8),
        (load(cpus=81), lacks("CPUs", "9", "90", "10")),
        (load(gib=800), 8),
        (load(gib=801), lacks("GiB of memory", "99", "900", "100")),
        (load(pods=109), 1),
        (load(pods=110), lacks("slots for pods", "0", "110", "1")),
        (load(cpus=200), lacks("CPUs", "0", "90", "10")),
    ],
)
def test_without_requests_one_gpus_share_is_needed(taken: NodeLoad, found: int | tuple[Exclusion, str]) -> None:
    """The share is a ninth of the node: 8 GPUs and one more for pods without GPUs."""
    assert startable(taken, PodDemand(8)) == found


@pytest.mark.parametrize(
    ("taken", "pod", "found"),
    [
        (load(), PodDemand(4, 45_000, 450 * GIB), 2),
        (load(cpus=1), PodDemand(4, 45_000, 450 * GIB), 1),
        (load(gib=1), PodDemand(4, 45_000, 450 * GIB), 1),
        (load(pods=109), PodDemand(4, 1_000, GIB), 1),
        (load(cpus=46), PodDemand(4, 45_000, 450 * GIB), lacks("CPUs", "44", "90", "45")),
        (load(), PodDemand(4, 1_000, 901 * GIB), lacks("GiB of memory", "900", "900", "901")),
        (load(cpus=90), PodDemand(4, 0, 0), 8),
    ],
)
def test_with_requests_so_many_pods_fit_as_these_allow(
    taken: NodeLoad, pod: PodDemand, found: int | tuple[Exclusion, str]
) -> None:
    assert startable(taken, pod) == found


def test_a_resource_that_a_node_does_not_report_is_0_for_a_pod_that_requests_it_and_unchecked_for_others() -> None:
    silent = Resources(gpus="8")
    assert startable(load(cpus=1, gib=1, pods=1), PodDemand(8), silent) == 8
    assert startable(load(), PodDemand(8, 1_000), silent) == lacks("CPUs", "0", "0", "1")


def test_a_quantity_that_cannot_be_read_is_a_shortage_of_that_resource() -> None:
    broken = Resources(gpus="8", cpu="90", memory="x", pods="110")
    unread = "what is allocatable cannot be read: 'x' is no number of GiB of memory"
    assert startable(load(), PodDemand(8), broken) == (Exclusion.INSUFFICIENT_MEMORY, unread)


def test_a_shortage_says_what_is_free_and_what_is_needed() -> None:
    large = Resources(gpus="8", cpu="192", memory="2Ti", pods="110")
    assert startable(load(cpus=191), PodDemand(8), large) == lacks("CPUs", "1", "192", "21.33")
    half = NodeLoad(0, 2048 * GIB - GIB // 2, 0)
    assert startable(half, PodDemand(8, memory=256 * GIB), large) == lacks("GiB of memory", "0.5", "2048", "256")


def pod_on(name: str, node: str, *containers: Json, init: list[Json] | None = None, **more: Json) -> Pod:
    spec = {"nodeName": node, "containers": [{"resources": each} for each in containers], **more}
    spec["initContainers"] = [{"resources": each} for each in init or []]
    value = {"metadata": {"name": name, "namespace": "ml"}, "spec": spec, "status": {"phase": "Running"}}
    return convert(value, Pod)


def test_a_pod_requests_the_sum_of_its_containers_or_its_largest_init_container_and_its_overhead() -> None:
    half, whole = {"requests": {"cpu": "500m", "memory": "1Gi"}}, {"limits": {"cpu": 3}}
    found = requested_load(pod_on("p", "n", half, whole, init=[{"requests": {"memory": "5Gi"}}], overhead={"cpu": "1"}))
    assert found == NodeLoad(4_500, 5 * GIB, 1)


def nodes() -> list[Node]:
    items = [node_json(name, {"gpu.flavor": "h100"}) for name in ("a", "b")]
    for item in items:
        item["status"]["allocatable"] |= {"cpu": "192", "memory": "2Ti", "pods": "110"}
    return [convert(item, Node) for item in items]


def usable(*pods: Pod, pod: PodDemand | None = None, own: tuple[str, ...] = ()) -> UsableNodes:
    demand = NodeDemand("h100", pod=pod or PodDemand(8))
    return usable_nodes(survey_nodes(nodes(), Topology()), usage(pods), demand, own=own)


CPU_PODS = {
    Exclusion.INSUFFICIENT_CPU: [pod_on("cpu", "a", {"requests": {"cpu": "191"}})],
    Exclusion.INSUFFICIENT_MEMORY: [pod_on("memory", "a", {"requests": {"memory": "1900Gi"}})],
    Exclusion.TOO_MANY_PODS: [pod_on(f"p{number}", "a", {}) for number in range(110)],
}


@pytest.mark.parametrize("reason", CPU_PODS)
def test_a_node_that_pods_without_gpus_filled_is_not_used(reason: Exclusion) -> None:
    found = usable(*CPU_PODS[reason])
    assert ([node.name for node in found.nodes], found.counts) == (["b"], {reason: 1})
    assert "are free, and a pod needs" in found.excluded[0].detail


def test_a_node_where_pods_of_the_run_are_is_used_in_any_case() -> None:
    assert [node.name for node in usable(*CPU_PODS[Exclusion.INSUFFICIENT_CPU], own=("a",)).nodes] == ["a", "b"]


def test_a_node_whose_gpus_are_in_use_with_its_cpus_is_one_that_could_be_freed() -> None:
    pods = [pod_on("p", "a", {"limits": {"nvidia.com/gpu": 1, "cpu": "191"}})]
    assert [(node.name, node.free) for node in usable(*pods).nodes] == [("a", 7), ("b", 8)]
    assert usable(*pods, pod=PodDemand(4)).counts == {Exclusion.INSUFFICIENT_CPU: 1}


def test_a_node_gives_no_more_gpus_than_its_pods_can_start_with() -> None:
    found = usable(pod_on("p", "a", {"requests": {"cpu": "100"}}), pod=PodDemand(2, 30_000, GIB))
    assert [(node.name, node.free, node.total) for node in found.nodes] == [("a", 6, 8), ("b", 8, 8)]


def test_a_pod_with_an_invalid_request_makes_what_is_free_on_its_node_unknown() -> None:
    found = usable(pod_on("p", "a", {"requests": {"cpu": "many"}}))
    assert [node.name for node in found.nodes] == ["b"]
    assert [entry.message for entry in found.quarantined] == ["pod ml/p on it: 'many' is no number of CPUs"]
