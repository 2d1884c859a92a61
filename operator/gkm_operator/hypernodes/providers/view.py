"""The view of the cluster for a provider: all HyperNodes and Nodes, and for built-in providers the agents' reports.

The process that runs the provider publishes every change that its watches show.
"""

from collections.abc import Iterable, Iterator, Mapping
from threading import Condition
from typing import Any, Literal

import msgspec
from gkm.api.fabrics import NodeFabric
from gkm.topology.hypernodes import HyperNode
from gkm.topology.providers import ClusterNode
from msgspec import Struct

MAX_VIEW = 200_000
"""Limit of objects of each kind in the view; further objects are left out."""

Kind = Literal["HyperNode", "Node", "Ports", "Neighbors", "Survey"]


class AgentReport(Struct, frozen=True):
    """A report of an agent about its node, for built-in providers.

    Ports and Neighbors are a NodeFabric in JSON without the rest; a Survey is the text in its ConfigMap.
    """

    kind: Kind
    name: str
    data: bytes


Value = HyperNode | ClusterNode | AgentReport


class LiveView:
    """The view of the cluster that a provider gets (gkm.topology.providers.HyperNodeView). Thread-safe."""

    def __init__(self, earlier_names: frozenset[str] = frozenset()) -> None:
        self.earlier_names = earlier_names
        """The names of HyperNodes that this provider has sent before the start of this process."""
        self.version = 0
        """Grows with each change."""
        self._values: dict[Kind, dict[str, Any]] = {
            kind: {} for kind in ("HyperNode", "Node", "Ports", "Neighbors", "Survey")
        }
        self._readers: list[dict[str, None]] = []
        self._stopped = False
        self._condition = Condition()

    def list(self) -> list[HyperNode]:
        """Return all HyperNodes of the cluster."""
        with self._condition:
            return [*self._values["HyperNode"].values()]

    def get(self, name: str) -> HyperNode | None:
        """Return a HyperNode by its name, None if absent."""
        with self._condition:
            found: HyperNode | None = self._values["HyperNode"].get(name)
            return found

    def changes(self) -> Iterator[str]:
        """Yield the name of each HyperNode that changes from now on, until the provider stops."""
        unread: dict[str, None] = {}
        with self._condition:
            self._readers.append(unread)
        return self._changes(unread)

    def nodes(self) -> tuple[ClusterNode, ...]:
        """Return the Nodes of the cluster."""
        with self._condition:
            return (*self._values["Node"].values(),)

    def surveys(self) -> Mapping[str, bytes]:
        """Return the texts of InfiniBand surveys by node."""
        with self._condition:
            return {**self._values["Survey"]}

    def fabrics(self, kind: Kind) -> tuple[NodeFabric, ...]:
        """Return the NodeFabrics of all Nodes, with their ports or with their neighbors only."""
        with self._condition:
            nodes = self._values["Node"]
            found = [data for name, data in self._values[kind].items() if name in nodes]
        return tuple([msgspec.json.decode(data, type=NodeFabric) for data in found])

    def publish(self, changed: Iterable[Value], deleted: Iterable[tuple[Kind, str]] = ()) -> None:
        """Add or change objects of the view, remove `deleted` ones, and wake readers."""
        with self._condition:
            version = self.version
            names: dict[str, None] = {}
            for kind, name in deleted:
                self._values[kind].pop(name, None)
                version += 1
                names |= {name: None} if kind == "HyperNode" else {}
            size = sum(map(len, self._values.values()))
            for value in changed:
                kind = _kind(value)
                if value.name not in self._values[kind]:
                    if size >= MAX_VIEW:
                        continue
                    size += 1
                self._values[kind][value.name] = value.data if isinstance(value, AgentReport) else value
                version += 1
                names |= {value.name: None} if kind == "HyperNode" else {}
            for unread in self._readers:
                unread.update(names)
            self.version = version
            self._condition.notify_all()

    def wait_for_change(self, version: int, seconds: float) -> None:
        """Wait until the view is newer than `version`, the provider stops, or `seconds` have passed."""
        with self._condition:
            self._condition.wait_for(lambda: self.version > version or self._stopped, seconds)

    def stop(self) -> None:
        """End all iterations over changes, because the provider stops."""
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


def _kind(value: Value) -> Kind:
    if isinstance(value, AgentReport):
        return value.kind
    return "HyperNode" if isinstance(value, HyperNode) else "Node"
