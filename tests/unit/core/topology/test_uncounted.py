"""GPUs that only DRA hands out: nodes and pods with them are named, as their numbers are not counted."""

from gkm.api.topology_settings import Topology
from gkm.topology.pods import Pod
from gkm.topology.survey import survey_nodes
from gkm.topology.usage import claiming_pods, uncounted_notes
from msgspec import convert
from support.topology.kube_lists import GPU, Json, node, pod_json

H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}


def claiming(name: str, on: str, gpus: object = None, phase: str = "Running") -> Pod:
    limits: Json = {} if gpus is None else {GPU: gpus}
    found = pod_json(name, on, {"resources": {"limits": limits}}, phase=phase)
    found["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": "eight-gpus"}]
    return convert(found, Pod)


def test_a_node_with_a_flavor_and_no_allocatable_gpu_is_named() -> None:
    nodes = [node("dra", H100, None), node("plugin", H100), node("cpu", {}, None), node("zero", H100, "0")]
    surveyed = survey_nodes(nodes, Topology())
    assert surveyed.uncounted == {"dra": "nvidia-h100-80gb-hbm3"}
    (note,) = uncounted_notes(surveyed.uncounted, {})
    assert note.startswith("1 node has a GPU flavor and no allocatable nvidia.com/gpu, such as dra: GPUs that only DRA")


def test_pods_with_claims_and_no_gpus_of_a_device_plugin_are_counted() -> None:
    """A pod with GPUs of the device plugin claims another device, such as an IMEX channel."""
    pods = [
        claiming("a", "n1"),
        claiming("b", "n1"),
        claiming("channel", "n1", "8"),
        claiming("ended", "n2", phase="Succeeded"),
        claiming("waits", ""),
        claiming("wrong", "n2", "1.5"),
    ]
    assert claiming_pods(pods) == {"n1": 2}
    (note,) = uncounted_notes({}, claiming_pods(pods))
    assert note == (
        "2 pods hold ResourceClaims and no nvidia.com/gpu, on nodes such as n1: the usage includes no GPUs of "
        "claims, which are not read"
    )


def test_a_cluster_of_device_plugins_needs_no_word() -> None:
    assert list(uncounted_notes(survey_nodes([node("n", H100)], Topology()).uncounted, {})) == []
