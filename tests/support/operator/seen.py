"""The API server's view of caches on one node, and the pods that use them there."""

from dataclasses import dataclass, replace
from typing import Any

from gkm.hoststate import records
from gkm.hoststate.names import CacheRef
from gkm.hoststate.records import VolumeRecord
from support.agent.machine import Machine
from support.cluster.cluster import Cluster

TEAM, NODE = "ml-apps", "audited-node"
Json = dict[str, Any]


@dataclass(frozen=True)
class Seen:
    """One node, on a machine, by its objects; `place` is the namespace of a cache, None for the cluster kind."""

    cluster: Cluster
    machine: Machine

    def is_verified(self, name: str, place: str | None) -> bool:
        status = self.cluster.get("gkmcache" if place else "clustergkmcache", name, place).get("status", {})
        return any(one["type"] == "Verified" and one["status"] == "True" for one in status.get("conditions", []))

    def on_node(self, name: str, place: str | None) -> Json:
        """Return the node object's entry for a cache; {} for none."""
        found: Json = self.node_object(place).get("status", {}).get("caches", {}).get(name, {})
        return found

    def node_object(self, place: str | None) -> Json:
        """Return the object that the agent wrote; {} for none."""
        return self.cluster.objects.get("gkmcachenode" if place else "clustergkmcachenode", NODE, place)

    def is_ready(self, name: str, place: str | None) -> bool:
        return bool(self.on_node(name, place).get("state") == "Ready")

    def has_no_object(self, place: str | None) -> bool:
        return not self.node_object(place)

    def use(self, name: str) -> None:
        """Record a pod's volume, as the CSI driver does before it mounts."""
        ref = CacheRef(TEAM, name)
        record = VolumeRecord("csi-1", "/pods/x/mount", "pod-x", TEAM, "uid", ref, self.machine.digest, 1, "")
        records.save(self.machine.layout, replace(record, start_time="2026-01-01T00:00:00Z"))

    def last_pod_goes(self) -> None:
        records.remove(self.machine.layout, "csi-1")

    def labels(self) -> Json:
        """Return the labels of the Node."""
        found: Json = self.cluster.get("node", NODE)["metadata"].get("labels", {})
        return found
