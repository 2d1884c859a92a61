"""What the nodes say of the caches, watched and summed up by differences."""

from collections.abc import Callable
from typing import Any

from gkm.kube.api import Api
from gkm.kube.reflector import Reflector

from gkm_operator.caches.contributions import CLUSTER_NODES, NODES, Node, of_node
from gkm_operator.caches.tally import CacheKey, Fleet, Summary


class Aggregation:
    """The node objects of both kinds. `changed` is told of every cache whose sums are others than before."""

    def __init__(self, api: Api, changed: Callable[[CacheKey], None]) -> None:
        self._changed = changed
        self._fleet = Fleet()
        self.reflectors: tuple[Reflector[Any], ...] = (
            Reflector(api, NODES, self._node_changed),
            Reflector(api, CLUSTER_NODES, self._node_changed),
        )

    def summary(self, key: CacheKey, digest: str | None) -> Summary:
        """Return the sums of a cache, for the digest that it stands for."""
        return self._fleet.summary(key, digest)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        node = new or old
        assert node is not None  # noqa: S101 -- a reflector hands on at least one of them
        for key in self._fleet.change(node.metadata.namespace, node.metadata.name, of_node(old), of_node(new)):
            self._changed(key)
