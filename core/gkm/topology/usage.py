"""Add up what pods use on each node: GPUs, CPUs, memory and pod slots. Pure; the order of pods has no effect.

GPUs that only DRA hands out are in no allocatable resource of a node, and GKM plans for device plugins: a node with
such GPUs looks like a node without GPUs, which the usage reports. GPUs that ResourceClaims hold are in use where the
source of the pods reads claims; else the usage reports the pods that may hold some.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gkm.api.grammar import agree, count_of
from gkm.topology.labels import named_flavor
from gkm.topology.nodes import Node
from gkm.topology.pods import NodeLoad, Pod, occupies_node, requested_gpus, requested_load


@dataclass(frozen=True, slots=True)
class Usage:
    """The GPUs in use on each node, and the other requests of its pods; a node without pods is absent.

    `faults` are nodes with a pod that requests an invalid quantity, each with a message: the free capacity of such a
    node is unknown. `holders` are the pods that use GPUs by node, as namespace/name; the controllers name no pods,
    since a user of one namespace must not see pods of others.
    """

    gpus: Mapping[str, int] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)
    loads: Mapping[str, NodeLoad] = field(default_factory=dict)
    holders: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    claiming: Mapping[str, int] = field(default_factory=dict, kw_only=True)
    """How many pods on each node hold ResourceClaims but no nvidia.com/gpu, if the source of pods reads no claims."""


def usage(pods: Iterable[Pod], unread: Iterable[tuple[str, str]] = ()) -> Usage:
    """Return the usage of nodes by pods; `unread` has node and message of each pod that could not be decoded.

    A pod that is listed twice on a node, as in two overlapping lists, counts once, with the larger numbers.
    """
    by_pod: dict[tuple[str, str, str], tuple[int, ...]] = {}
    wrong: list[tuple[str, str]] = list(unread)
    for pod in pods:
        if not occupies_node(pod):
            continue
        node, namespace, name = pod.spec.node_name, pod.metadata.namespace, pod.metadata.name
        try:
            requested = (requested_gpus(pod), *requested_load(pod))
        except ValueError as error:
            wrong.append((node, f"pod {ascii(f'{namespace}/{name}'[:128])[1:-1]} on it: {error}"))
            continue
        key = (node, namespace, name)
        by_pod[key] = tuple(map(max, requested, by_pod.get(key, requested)))
    gpus: dict[str, int] = {}
    loads: dict[str, NodeLoad] = {}
    holders: dict[str, dict[str, int]] = {}
    for (node, namespace, name), (count, *load) in by_pod.items():
        if count:
            gpus[node] = gpus.get(node, 0) + count
            holders.setdefault(node, {})[f"{namespace}/{name}"] = count
        loads[node] = added(loads.get(node, NodeLoad()), NodeLoad(*load))
    # Keep the first of several messages about a node in alphabetical order, so that the order of pods does not matter.
    return Usage(gpus, dict(sorted(wrong, reverse=True)), loads, holders)


def with_loads(usage: Usage, loads: Mapping[str, NodeLoad]) -> Usage:
    """Return the usage plus the requests of pods that are planned on nodes and have not started."""
    if not loads:
        return usage
    sums = {node: added(usage.loads.get(node, NodeLoad()), load) for node, load in loads.items()}
    return replace(usage, loads={**usage.loads, **sums})


def with_claims(usage: Usage, gpus: Iterable[Mapping[str, int]]) -> Usage:
    """Return the usage plus the GPUs that ResourceClaims hold on each node."""
    sums = Counter(usage.gpus)
    for held in gpus:
        sums.update(held)
    return replace(usage, gpus=sums, claiming={})


def added(load: NodeLoad, other: NodeLoad, sign: int = 1) -> NodeLoad:
    """Return the sum of two loads; with `sign` -1 the difference."""
    return NodeLoad(load.cpu + sign * other.cpu, load.memory + sign * other.memory, load.pods + sign * other.pods)


def uncounted_flavors(nodes: Iterable[Node], keys: Sequence[str]) -> dict[str, str]:
    """Return the flavor of each node that has a flavor label in `keys` but no allocatable nvidia.com/gpu."""
    named = ((node.name, named_flavor(node.labels, keys)) for node in nodes if node.gpus is None)
    return {name: flavor for name, flavor in sorted(named) if flavor}


def claiming_pods(pods: Iterable[Pod]) -> Mapping[str, int]:
    """Return how many pods on each node hold ResourceClaims but request no nvidia.com/gpu.

    A pod with both has its GPUs from the device plugin, and its claim is for another device, such as an IMEX channel.
    """
    return Counter(pod.spec.node_name for pod in pods if pod.spec.resource_claims and _holds_no_gpu(pod))


def _holds_no_gpu(pod: Pod) -> bool:
    try:
        return occupies_node(pod) and not requested_gpus(pod)
    except ValueError:
        return False  # its node is unknown


def uncounted_notes(flavors: Mapping[str, str], claiming: Mapping[str, int]) -> Iterator[str]:
    """Yield sentences about nodes and pods whose GPUs GKM may not count."""
    if flavors:
        nodes = f"{count_of(len(flavors), 'node')} {agree(len(flavors), 'has', 'have')}"
        yield (
            f"{nodes} a GPU flavor and no allocatable nvidia.com/gpu, such as {min(flavors)}: GPUs that only DRA hands "
            "out are not counted; if a device plugin should offer them, look at it"
        )
    if claiming:
        pods = sum(claiming.values())
        holding = f"{count_of(pods, 'pod')} {agree(pods, 'holds', 'hold')} ResourceClaims and no nvidia.com/gpu"
        yield f"{holding}, on nodes such as {min(claiming)}: the usage includes no GPUs of claims, which are not read"
