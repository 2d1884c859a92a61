"""Writes the Topology of Kueue or of KAI: it lists node labels, so it changes with the configuration only.

Neither lets all levels change. What GKM cannot or must not change is reported with the command that helps.
"""

from dataclasses import dataclass
from typing import Any

from gkm.api.hypernodes import SchedulerTopology
from gkm.api.mnnvl_metadata import WRITER, WRITER_LABEL
from gkm.api.topology_status import TopologyReason
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.resources import Resource

from gkm_operator import metrics
from gkm_operator.hypernodes.findings import Blocked

_INVALID = 422
# Kueue's finalizer kueue.x-k8s.io/resource-in-use; KAI has none.
_IN_USE = " (Kueue deletes it when no ResourceFlavor names it any more)"


@dataclass(frozen=True, slots=True)
class TopologyWriter:
    """Writes one object, `wanted`, whose fields are the same in all versions of its kind."""

    api: Api
    wanted: dict[str, Any]

    def write(self, resource: Resource[SchedulerTopology]) -> bool:
        """Create the object, or change its levels; return whether a request was necessary.

        Raises:
            Blocked: the API server refuses the change, or another writer has the object.
            ApiError: the API server refuses the request, or does not respond.
        """
        metadata, spec = self.wanted["metadata"], self.wanted["spec"]
        name = metadata["name"]
        labels = {WRITER_LABEL: WRITER}
        found = self.api.find(resource, name)
        if found is None:
            value = self.wanted | {"apiVersion": resource.api_version, "metadata": metadata | {"labels": labels}}
            self.api.create(resource, value)
            metrics.TOPOLOGY_CHANGES.labels("Topology", "create").inc()
            return True
        if found.keys == tuple(level["nodeLabel"] for level in spec["levels"]):
            return False
        delete = f"kubectl delete topologies.{resource.api_version.partition('/')[0]} {name}{_IN_USE}"
        if (found.metadata.labels or {}).get(WRITER_LABEL) != WRITER:
            raise Blocked(
                TopologyReason.TOPOLOGY_BLOCKED,
                f"Topology {name} has other levels, and is not GKM's; configure another name, or delete it: {delete}",
            )
        patch = {"metadata": {"resourceVersion": found.metadata.resource_version}, "spec": spec}
        try:
            self.api.merge(resource, name, patch)
        except ApiError as error:
            if error.status == _INVALID:
                raise Blocked(
                    TopologyReason.TOPOLOGY_BLOCKED,
                    f"the levels of Topology {name} cannot be changed; delete it, and GKM creates it anew: {delete}",
                ) from error
            raise
        metrics.TOPOLOGY_CHANGES.labels("Topology", "update").inc()
        return True
