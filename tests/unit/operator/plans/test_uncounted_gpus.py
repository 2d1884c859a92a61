"""A run whose nodes have GPUs by DRA only is refused with what is not counted."""

from gkm.api.topology_settings import Topology
from gkm.packing.usable_nodes import no_usable_node, usable_nodes
from gkm.topology.eligibility import NodeDemand
from gkm.topology.survey import survey_nodes
from gkm.topology.usage import Usage
from gkm_operator.plans.planning.refusals import unfit
from support.topology.kube_lists import node

H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}


def test_a_refusal_names_the_nodes_whose_gpus_are_not_counted() -> None:
    surveyed = survey_nodes([node("a", H100, None), node("b", H100, None)], Topology())
    usable = usable_nodes(surveyed, Usage(), NodeDemand("nvidia-h100-80gb-hbm3"))
    refusal = no_usable_node(usable)
    assert refusal is not None
    found = unfit(refusal, usable, surveyed, "nvidia-h100-80gb-hbm3")
    assert found.level == "flavor"
    assert found.message == (
        "2 nodes of flavor nvidia-h100-80gb-hbm3, all without GPUs: is the device plugin there? GPUs that only DRA "
        "hands out are not counted"
    )
