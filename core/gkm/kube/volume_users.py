"""The pods that need GKM: they use its volumes, which only its CSI driver can unmount, or wait behind its gate.

They come from the API server, not from the reports of agents: they include a starting pod, and a pod on a node whose
agent is silent.
"""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct, field

from gkm.api.grammar import listed
from gkm.api.installation import DRIVER
from gkm.api.runs import GATE
from gkm.kube.api import Api, Key, ListSelector
from gkm.kube.resources import Resource

SHOWN = 20
"""Number of pods of each kind that the message names; it counts the others."""
# The kubelet unmounts the volumes of pods that ended.
_PLACED = ListSelector(fields="spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed")
# A pod with a gate has no node.
_WAITING = ListSelector(fields="spec.nodeName=,status.phase=Pending")


class _CSI(Struct, frozen=True):
    driver: str


class _Volume(Struct, frozen=True):
    csi: _CSI | None = None


class _Gate(Struct, frozen=True):
    name: str


class _Spec(Struct, frozen=True, rename="camel"):
    volumes: list[_Volume] = field(default_factory=list)
    scheduling_gates: list[_Gate] = field(default_factory=list)


class _Pod(Struct, frozen=True):
    """A pod, reduced to the drivers of its volumes and its scheduling gates."""

    spec: _Spec


PODS: Resource[_Pod] = Resource("v1", "Pod", "pods", namespaced=True, type=_Pod)


def pods_with_volumes(api: Api) -> Iterator[Key]:
    """Yield namespace and name of each running or starting pod with a volume of csi.gkm.io.

    A pod that cannot be decoded may have one.

    Raises:
        ApiError: the pods cannot be listed.
    """
    return _pods(api, _PLACED, _is_user)


def gated_pods(api: Api) -> Iterator[Key]:
    """Yield namespace and name of each pod behind GKM's scheduling gate; without the controllers it never starts.

    A pod that cannot be decoded may have it.

    Raises:
        ApiError: the pods cannot be listed.
    """
    return _pods(api, _WAITING, _is_gated)


def _pods(api: Api, selector: ListSelector, needs_gkm: Callable[[_Pod], bool]) -> Iterator[Key]:
    for page in api.list_pages(PODS, selector):
        yield from (entry.key for entry in page.entries if needs_gkm(entry.value))
        yield from page.unreadable


def explanation(users: Sequence[Key], gated: Sequence[Key]) -> str:
    """Return a message that names the pods that prevent an uninstallation, and says what to do."""
    parts = []
    if users:
        uses = "1 pod uses" if len(users) == 1 else f"{len(users)} pods use"
        why = "which only its CSI driver can unmount"
        parts.append(f"{uses} volumes of GKM, {why}: {_names(users)}; delete them or let them end")
    if gated:
        waits = "1 pod waits" if len(gated) == 1 else f"{len(gated)} pods wait"
        why = "which only the controllers remove"
        way = "delete them or remove the gate (docs/features/placement.md)"
        parts.append(f"{waits} behind the scheduling gate {GATE}, {why}: {_names(gated)}; {way}")
    return f"{'. '.join(parts)}, then uninstall again" if parts else "no pod uses a volume of GKM"


def _names(pods: Sequence[Key]) -> str:
    return listed(["/".join(pod) for pod in pods], SHOWN)


def _is_user(pod: _Pod) -> bool:
    return any(volume.csi is not None and volume.csi.driver == DRIVER for volume in pod.spec.volumes)


def _is_gated(pod: _Pod) -> bool:
    return any(gate.name == GATE for gate in pod.spec.scheduling_gates)
