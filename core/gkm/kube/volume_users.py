"""The pods that use volumes of GKM, which only its CSI driver can unmount.

They come from the API server, not from the reports of agents: they include a starting pod, and a pod on a node whose
agent is silent.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from gkm.api.installation import DRIVER
from gkm.kube.api import Api, ListSelector
from gkm.kube.resources import Resource

SHOWN = 20
"""Number of pods that the message names; it counts the others."""
# The kubelet unmounts the volumes of pods that ended.
_PLACED = ListSelector(fields="spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed")


class _CSI(Struct, frozen=True):
    driver: str


class _Volume(Struct, frozen=True):
    csi: _CSI | None = None


class _Spec(Struct, frozen=True):
    volumes: list[_Volume] = field(default_factory=list)


class _Pod(Struct, frozen=True):
    """A pod, reduced to the drivers of its volumes."""

    spec: _Spec


_PODS: Resource[_Pod] = Resource("v1", "Pod", "pods", namespaced=True, type=_Pod)


def pods_with_volumes(api: Api) -> Iterator[tuple[str, str]]:
    """Yield namespace and name of each running or starting pod with a volume of csi.gkm.io.

    A pod that cannot be decoded may have one.

    Raises:
        ApiError: the pods cannot be listed.
    """
    for page in api.list_pages(_PODS, _PLACED):
        yield from (entry.key for entry in page.entries if _is_user(entry.value))
        yield from page.unreadable


def explanation(pods: Sequence[tuple[str, str]]) -> str:
    """Return a message that names the pods that prevent an uninstallation, and says what to do."""
    if not pods:
        return "no pod uses a volume of GKM"
    more = f" and {len(pods) - SHOWN} more" if len(pods) > SHOWN else ""
    names = ", ".join(map("/".join, pods[:SHOWN]))
    users = "1 pod uses" if len(pods) == 1 else f"{len(pods)} pods use"
    return (
        f"{users} volumes of GKM, which only its CSI driver can unmount: {names}{more}; "
        "delete them or let them end, then uninstall again"
    )


def _is_user(pod: _Pod) -> bool:
    return any(volume.csi is not None and volume.csi.driver == DRIVER for volume in pod.spec.volumes)
