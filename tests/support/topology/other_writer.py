"""A second writer of HyperNodes, which stands in for Volcano's own controller with its discovery by labels.

It does what that controller does (volcano-sh/volcano ed72c7c8, pkg/controllers/hypernode): it lists the HyperNodes of
its source by their label, creates what it found and they lack, updates all others in each round even without a
difference, and deletes what it did not find. A name that is taken stays, and is logged.
docs/reference/topology-volcano.md has a run of the real one.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from support.cluster.cluster import Cluster, KubectlFailed
from support.operator.topology import SOURCE, hypernode


@dataclass
class OtherWriter:
    """Writes HyperNodes of one source; `taken` has the names that it could not create."""

    cluster: Cluster
    source: str
    taken: set[str] = field(default_factory=set)

    def round(self, discovered: Mapping[str, Sequence[str]], tier: int = 1) -> None:
        """Write HyperNodes with these nodes, by name, and delete the others of the source."""
        here = set(self.names())
        for name, nodes in discovered.items():
            wanted = json.dumps(hypernode(name, tier, nodes=nodes, source=self.source))
            if name in here:
                self.cluster.kubectl("replace", "--filename", "-", input=wanted)
                continue
            try:
                self.cluster.kubectl("create", "--filename", "-", input=wanted)
            except KubectlFailed as error:
                assert "AlreadyExists" in str(error), error
                self.taken.add(name)
        for name in here - discovered.keys():
            self.cluster.kubectl("delete", "hypernode", name)

    def names(self) -> list[str]:
        """Return the HyperNodes of the source."""
        listed = self.cluster.objects.every("hypernode", labelSelector=f"{SOURCE}={self.source}")
        return [one["metadata"]["name"] for one in listed]
