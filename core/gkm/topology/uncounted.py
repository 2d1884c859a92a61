"""GPUs that are not counted: those that only DRA hands out are in no allocatable resource of a node. Pure.

ResourceSlices and ResourceClaims would tell them, and GKM plans for device plugins. A node with such GPUs looks like
one without any, and a pod that holds them like one that holds none, so what is not counted is said.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gkm.api.grammar import agree, count_of
from gkm.topology.labels import named_flavor
from gkm.topology.nodes import Node
from gkm.topology.pods import Pod, occupies_node, requested_gpus


def uncounted_flavors(nodes: Iterable[Node], keys: Sequence[str]) -> dict[str, str]:
    """Return the flavor of each node that has one, by the labels `keys`, and no allocatable nvidia.com/gpu."""
    named = ((node.name, named_flavor(node.labels, keys)) for node in nodes if node.gpus is None)
    return {name: flavor for name, flavor in sorted(named) if flavor}


def claiming_pods(pods: Iterable[Pod]) -> Mapping[str, int]:
    """Return how many pods of each node hold ResourceClaims and request no nvidia.com/gpu.

    A pod with both has its GPUs from the device plugin, and its claim is for another device, such as an IMEX channel.
    """
    return Counter(pod.spec.node_name for pod in pods if pod.spec.resource_claims and _holds_no_gpu(pod))


def _holds_no_gpu(pod: Pod) -> bool:
    try:
        return occupies_node(pod) and not requested_gpus(pod)
    except ValueError:
        return False  # its node counts as unknown


def uncounted_notes(flavors: Mapping[str, str], claiming: Mapping[str, int]) -> Iterator[str]:
    """Yield sentences about nodes and pods whose GPUs may not be counted."""
    if flavors:
        nodes = f"{count_of(len(flavors), 'node')} {agree(len(flavors), 'has', 'have')}"
        yield (
            f"{nodes} a GPU flavor and no allocatable nvidia.com/gpu, such as {min(flavors)}: GPUs that only DRA hands "
            "out are not counted; if a device plugin should offer them, look at it"
        )
    if claiming:
        pods = sum(claiming.values())
        holding = f"{count_of(pods, 'pod')} {agree(pods, 'holds', 'hold')} ResourceClaims and no nvidia.com/gpu"
        yield f"{holding}, on nodes such as {min(claiming)}: GPUs of claims are not counted as used"
