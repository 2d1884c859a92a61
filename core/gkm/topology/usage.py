"""The GPUs of each node that pods use. Pure; the order of pods does not matter."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gkm.topology.pods import Pod, occupies_node, requested_gpus


@dataclass(frozen=True, slots=True)
class Usage:
    """GPUs in use by node; a node without any is absent.

    `faults` are nodes with a pod that requests an invalid number of GPUs, each with a message: the number of free GPUs
    of such a node is unknown.
    """

    gpus: Mapping[str, int] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)


def usage(pods: Iterable[Pod], unread: Iterable[tuple[str, str]] = ()) -> Usage:
    """Return the usage of pods; `unread` has the node and message of each pod that cannot be decoded.

    A pod that is listed twice on a node, as in two overlapping lists, counts once, with the larger number.
    """
    by_pod: dict[tuple[str, str, str], int] = {}
    wrong: list[tuple[str, str]] = list(unread)
    for pod in pods:
        if not occupies_node(pod):
            continue
        node, namespace, name = pod.spec.node_name, pod.metadata.namespace, pod.metadata.name
        try:
            count = requested_gpus(pod)
        except ValueError as error:
            wrong.append((node, f"pod {ascii(f'{namespace}/{name}'[:128])[1:-1]} on it: {error}"))
            continue
        if count:
            key = (node, namespace, name)
            by_pod[key] = max(count, by_pod.get(key, 0))
    gpus: dict[str, int] = {}
    for (node, _, _), count in by_pod.items():
        gpus[node] = gpus.get(node, 0) + count
    # Of several messages about a node the first in alphabetical order, so that the order of pods does not matter.
    return Usage(gpus, dict(sorted(wrong, reverse=True)))
