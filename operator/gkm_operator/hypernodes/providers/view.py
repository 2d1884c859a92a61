"""The live view of the cluster in a child process: HyperNodes, Nodes, and for built-in providers what agents report."""

from collections.abc import Iterator, Mapping
from threading import Condition
from typing import Any

import msgspec
from gkm.api.fabrics import NodeFabric
from gkm.topology.hypernodes import HyperNode
from gkm.topology.providers import ClusterNode

from gkm_operator.hypernodes.providers.messages import Kind, ToChild, Written


class LiveView:
    """`gkm.topology.providers.HyperNodeView`. Thread-safe; a reader that does not take changes holds one for a name."""

    def __init__(self) -> None:
        self._hypernodes: dict[str, HyperNode] = {}
        self._nodes: dict[str, ClusterNode] = {}
        self._observed: dict[str, dict[str, bytes]] = {"Ports": {}, "Neighbors": {}, "Survey": {}}
        self.written = Written()
        self.version = 0
        """Grows with each change."""
        self._readers: list[dict[str, None]] = []
        self._stopped = False
        self._synced = False
        self._condition = Condition()

    def list(self) -> list[HyperNode]:
        """Return all HyperNodes."""
        with self._condition:
            return [*self._hypernodes.values()]

    def get(self, name: str) -> HyperNode | None:
        """Return a HyperNode by its name."""
        with self._condition:
            return self._hypernodes.get(name)

    def changes(self) -> Iterator[str]:
        """Return the names of HyperNodes that change from now on, until the provider stops."""
        unread: dict[str, None] = {}
        with self._condition:
            self._readers.append(unread)
        return self._changes(unread)

    def nodes(self) -> tuple[ClusterNode, ...]:
        """Return the Nodes of the cluster."""
        with self._condition:
            return (*self._nodes.values(),)

    def surveys(self) -> Mapping[str, bytes]:
        """Return the surveys by node."""
        with self._condition:
            return {**self._observed["Survey"]}

    def fabrics(self, kind: Kind) -> tuple[NodeFabric, ...]:
        """Return the NodeFabrics of all Nodes, with their ports or with their neighbors only."""
        with self._condition:
            found = [data for name, data in self._observed[kind].items() if name in self._nodes]
        return tuple([msgspec.json.decode(data, type=NodeFabric) for data in found])

    def update(self, message: ToChild) -> None:
        """Apply a change."""
        with self._condition:
            deleted = [name for kind, name in message.deleted if kind == "HyperNode"]
            values: dict[str, dict[str, Any]] = {
                "HyperNode": self._hypernodes,
                "Node": self._nodes,
                **self._observed,
            }
            for kind, name in message.deleted:
                values[kind].pop(name, None)
            for one in message.observed:
                self._observed[one.kind][one.name] = one.data
            self._nodes |= {node.name: node for node in message.nodes}
            changed = {hypernode.name: hypernode for hypernode in message.hypernodes}
            self._hypernodes |= changed
            for unread in self._readers:
                unread.update(dict.fromkeys((*deleted, *changed)))
            self._synced |= message.synced
            self.version += 1
            self._condition.notify_all()

    def wait(self) -> None:
        """Wait until all HyperNodes are known, or the provider stops."""
        with self._condition:
            self._condition.wait_for(lambda: self._synced or self._stopped)

    def wait_for_change(self, version: int, seconds: float) -> None:
        """Wait until the view is newer than `version`, the provider stops, or `seconds` have passed."""
        with self._condition:
            self._condition.wait_for(lambda: self.version > version or self._stopped, seconds)

    def stop(self) -> None:
        """End all iterations."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()

    def _changes(self, unread: dict[str, None]) -> Iterator[str]:
        try:
            while True:
                with self._condition:
                    self._condition.wait_for(lambda: unread or self._stopped)
                    if self._stopped:
                        return
                    name = next(iter(unread))
                    del unread[name]
                yield name
        finally:
            with self._condition:
                self._readers = [reader for reader in self._readers if reader is not unread]
