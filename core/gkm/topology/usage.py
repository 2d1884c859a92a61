"""How many GPUs of each node the pods take. Pure; the order of pods does not matter."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gkm.topology.pods import Pod, occupies_node, requested_gpus


@dataclass(frozen=True, slots=True)
class Usage:
    """GPUs that are taken, by node; nodes of which none are, are absent.

    `faults` are nodes with a pod that asks for what is no number of GPUs, each with a sentence: how much of such a node
    is free, nobody knows.
    """

    gpus: Mapping[str, int] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)


def usage(pods: Iterable[Pod], unread: Iterable[tuple[str, str]] = ()) -> Usage:
    """Return what pods take; `unread` are those that could not be read, as node and sentence.

    A pod that is listed twice on a node, as in two lists that overlap, is counted once, as the larger.
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
    # Of several sentences about a node the first by letters: the answer is the same in whatever order pods come.
    return Usage(gpus, dict(sorted(wrong, reverse=True)))
