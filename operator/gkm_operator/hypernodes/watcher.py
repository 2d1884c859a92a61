"""The watches of the topology: nodes, HyperNodes of all sources, and the ProviderTrees of providers.

Must never write to the API server.
"""

from collections.abc import Callable
from itertools import count
from typing import Any

from gkm.api.config import Config
from gkm.api.hypernodes import HyperNodeObject, ThinMetadata
from gkm.api.provider_trees import ProviderTreeSpec, ProviderTreeStatus
from gkm.kube.api import Api
from gkm.kube.controller import WatchSet
from gkm.kube.informers import Informers
from gkm.kube.reflector import OnChange, Reflector
from gkm.kube.resources import HYPERNODES, PROVIDER_TREES
from gkm.topology.nodes import Node
from gkm.topology.providers import LABELS
from gkm.topology.trees.hypernode_objects import is_ours
from msgspec import Struct, field

from gkm_operator.nodes import NODES


class WatchedTree(Struct, frozen=True, gc=False):
    """A ProviderTree with reduced metadata, because users could fill it."""

    metadata: ThinMetadata
    spec: ProviderTreeSpec = ProviderTreeSpec()
    status: ProviderTreeStatus = field(default_factory=ProviderTreeStatus)


TREES = PROVIDER_TREES.of(WatchedTree)


class Input:
    """A kind of watched object that the topology is built from; `version` grows with each relevant change."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.version = 0
        self._versions = count(1)
        self._changed = changed

    def advance(self) -> None:
        """Increase the version after a change, and call the listener."""
        self.version = next(self._versions)
        self._changed()


class TopologyWatcher:
    """The watches of the topology that the configuration needs; `changed` is called after each change. Thread-safe.

    `tree_changed` is called with the provider of a ProviderTree that has changed. `hypernode_changed` are called with
    each relevant change of a HyperNode: add them before `start`.
    """

    def __init__(
        self,
        api: Api,
        config: Config,
        *,
        changed: Callable[[], None],
        tree_changed: Callable[[str], None],
        informers: Informers | None = None,
    ) -> None:
        self._has_providers = any(provider.name != LABELS for provider in config.topology.providers)
        self._tree_changed = tree_changed
        self.hypernode_changed: list[OnChange[HyperNodeObject]] = []
        self.node_input, self.hypernode_input = Input(changed), Input(changed)
        self.nodes = (informers or Informers(api)).of(NODES)
        self.nodes.subscribe(self._node)
        self.hypernodes = Reflector(api, HYPERNODES, self._hypernode)
        self.provider_trees = Reflector(api, TREES, self._tree)
        self._watches = WatchSet()

    @property
    def synced(self) -> bool:
        """Return whether the watches of Nodes, and of HyperNodes if started, have complete lists."""
        needed = [one for one in (self.nodes, self.hypernodes) if one in self._watches]
        return bool(needed) and all(reflector.synced.is_set() for reflector in needed)

    @property
    def wanted(self) -> tuple[Reflector[Any], ...]:
        """Return the watches that the topology needs: Nodes, and ProviderTrees if providers are configured."""
        return self.nodes, *((self.provider_trees,) if self._has_providers else ())

    def start(self, *, hypernodes: bool) -> None:
        """Start the watches that have not started yet; the watch of HyperNodes only if their kind is installed."""
        self._watches.start(*self.wanted, *((self.hypernodes,) if hypernodes else ()))

    def close(self, seconds: float) -> None:
        """Stop the watches within `seconds`."""
        self._watches.close(seconds)

    def _node(self, old: Node | None, new: Node | None) -> None:
        # kubelets update the status of every Node all the time.
        if old is None or new is None or old.labels != new.labels or (old.gpus is None) != (new.gpus is None):
            self.node_input.advance()

    def _hypernode(self, old: HyperNodeObject | None, new: HyperNodeObject | None) -> None:
        if old is None or new is None or _written(old) != _written(new):
            for callback in self.hypernode_changed:
                callback(old, new)
            self.hypernode_input.advance()

    def _tree(self, old: WatchedTree | None, new: WatchedTree | None) -> None:
        if (tree := new or old) is not None:
            self._tree_changed(tree.metadata.name)


def _written(found: HyperNodeObject) -> object:
    return found.spec, is_ours(found)
