"""What pods use of each node: GPUs, and what a further pod needs besides. Pure; the order of pods does not matter."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from gkm.topology.pods import NodeLoad, Pod, occupies_node, requested_gpus, requested_load


@dataclass(frozen=True, slots=True)
class Usage:
    """GPUs in use by node, and the other requests of its pods; a node without any is absent.

    `faults` are nodes with a pod that requests an invalid quantity, each with a message: what is free on such a node is
    unknown. `holders` are the pods that use GPUs by node, as namespace/name; the controllers name none, since a user of
    one namespace must not see pods of others.
    """

    gpus: Mapping[str, int] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)
    loads: Mapping[str, NodeLoad] = field(default_factory=dict)
    holders: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    claiming: Mapping[str, int] = field(default_factory=dict, kw_only=True)
    """Pods by node that hold ResourceClaims and no nvidia.com/gpu, where the source of the pods counts them."""


def usage(pods: Iterable[Pod], unread: Iterable[tuple[str, str]] = ()) -> Usage:
    """Return the usage of pods; `unread` has the node and message of each pod that cannot be decoded.

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
    # Of several messages about a node the first in alphabetical order, so that the order of pods does not matter.
    return Usage(gpus, dict(sorted(wrong, reverse=True)), loads, holders)


def with_loads(usage: Usage, loads: Mapping[str, NodeLoad]) -> Usage:
    """Return a usage with further loads by node: of pods that are planned and have not started."""
    if not loads:
        return usage
    sums = {node: added(usage.loads.get(node, NodeLoad()), load) for node, load in loads.items()}
    return replace(usage, loads={**usage.loads, **sums})


def added(load: NodeLoad, other: NodeLoad, sign: int = 1) -> NodeLoad:
    """Return the sum of two loads, or their difference with the sign -1."""
    return NodeLoad(load.cpu + sign * other.cpu, load.memory + sign * other.memory, load.pods + sign * other.pods)
