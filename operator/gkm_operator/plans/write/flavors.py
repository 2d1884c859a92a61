"""Which flavors of GPUs the nodes have, for the policy that refuses a Run with another (docs/design/plans.md)."""

import logging
from collections import Counter
from collections.abc import Sequence
from threading import Lock

from gkm.hoststate.logs import fields
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.resources import Json, Resource
from msgspec import structs

from gkm_operator.caches.nodes.liveness import NodeMeta, WatchedNode
from gkm_operator.plans.planning.refusals import first_label
from gkm_operator.plans.write.writer import FIELD_MANAGER, PlanWriter

_LOG = logging.getLogger(__name__)

NAME = "gkm-flavors"
MAX_FLAVORS = 1000
CONFIGMAPS: Resource[Json] = Resource("v1", "ConfigMap", "configmaps", namespaced=True, type=Json)


class FlavoredMeta(NodeMeta, frozen=True, gc=False):
    """Which Node, and its labels."""

    labels: dict[str, str] | None = None


def nodes(keys: Sequence[str]) -> Resource[WatchedNode]:
    """Return Nodes as the caches read them, each with the first of these labels that says something."""

    class Meta(FlavoredMeta, frozen=True, gc=False):
        def __post_init__(self) -> None:
            labels = self.labels or {}
            kept = next(({key: labels[key]} for key in keys if labels.get(key)), None)
            structs.force_setattr(self, "labels", kept)

    class Flavored(WatchedNode, frozen=True, gc=False):
        metadata: Meta

    return Resource("v1", "Node", "nodes", namespaced=False, type=Flavored)


class FlavorCounts:
    """How many nodes have each flavor, by differences; `also` are flavors whose nodes come later. Thread-safe."""

    def __init__(self, keys: Sequence[str], also: Sequence[str] = ()) -> None:
        self._keys = keys
        self._also = frozenset(flavor.lower() for flavor in also)
        self._count: Counter[str] = Counter()
        self._written: str | None = None
        self._lock = Lock()

    def see(self, old: WatchedNode | None, new: WatchedNode | None) -> bool:
        """Take in a difference of a Node; return whether it is of another flavor than before."""
        before, after = self._flavor(old), self._flavor(new)
        if before == after:
            return False
        with self._lock:
            self._count[before] -= 1
            self._count[after] += 1
        return True

    def text(self) -> str:
        """Return the flavors that there are, "" where there is none, or so many that nobody counts on them."""
        with self._lock:
            found = {flavor for flavor, count in self._count.items() if flavor and count > 0}
        if not found or len(found) > MAX_FLAVORS:
            return ""
        return ",".join(sorted(found | self._also))

    def write(self, api: Api, namespace: str, writer: PlanWriter) -> bool:
        """Write the ConfigMap if it says something else than when this process last wrote it; return whether it is so.

        All nodes must have been listed once.

        Raises:
            NotLeading: nothing must be written any more.
        """
        text = self.text()
        if text == self._written:
            return True
        meta = {"name": NAME, "namespace": namespace}
        value = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"flavors": text}}
        writer.check_leading()
        try:
            api.apply(CONFIGMAPS, value, field_manager=FIELD_MANAGER)
        except ApiError as error:
            _LOG.warning("flavors not written", extra=fields(why=str(error)))
            return False
        _LOG.info("flavors written", extra=fields(flavors=text[:400]))
        self._written = text
        return True

    def _flavor(self, node: WatchedNode | None) -> str:
        if node is None or not isinstance(node.metadata, FlavoredMeta):
            return ""
        return first_label(node.metadata.labels or {}, self._keys)
