"""Fills the view of admission and prints its growth in bytes as JSON: `python view_process.py SETS REPLICAS`."""

import json
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
from gkm.api.grove import PodCliqueSet
from gkm.api.mnnvl_metadata import AUTO_MNNVL
from gkm.kube import decoding
from gkm.kube.api import EVERYTHING, PAGE_LIMIT, ListPage, ListSelector
from gkm.kube.resources import Json, Resource
from gkm_operator.admission.domains.cluster_view import ClusterView
from gkm_operator.computedomains.objects import of_set
from gkm_operator.mnnvl.required import SetDomainKey
from support.grove.objects import clique, container, pod_clique_set
from support.host.memory import memory_of
from support.kube.fake_api import FakeApi

CREATED = "2026-01-01T00:00:00Z"
ENVIRONMENT = {"env": [{"name": f"NAME_{number}", "value": "x" * 30} for number in range(30)]}
NODES = [{"name": f"node-{number}", "cliqueID": "a.1", "index": number, "status": "Ready"} for number in range(18)]


class LargeCluster(FakeApi):
    """An API whose lists are made while they are read, so that only the view is in memory."""

    def __init__(self, sets: int, replicas: int) -> None:
        super().__init__()
        self._sets = sets
        self._replicas = replicas

    def list_pages(
        self, resource: Resource[Any], selector: ListSelector = EVERYTHING, limit: int = PAGE_LIMIT
    ) -> Iterator[ListPage[Any]]:
        assert selector.labels == ""
        made = {"podcliquesets": self._every_set, "computedomains": self._every_domain}
        pending: list[Json] = []
        for one in made[resource.plural]() if resource.plural in made else ():
            pending.append(one)
            if len(pending) == limit:
                yield _page(resource, pending)
                pending.clear()
        yield _page(resource, pending)

    def _every_set(self) -> Iterator[Json]:
        for number in range(self._sets):
            cliques = [
                clique(name, containers=[container("main", 8) | ENVIRONMENT, container("side")])
                for name in ("prefill", "decode", "router")
            ]
            made = pod_clique_set(f"set-{number}", *cliques, replicas=self._replicas, namespace=f"team-{number % 50}")
            made["metadata"] |= {"uid": f"{number:036}", "annotations": {AUTO_MNNVL: "enabled"}, "resourceVersion": "1"}
            yield made

    def _every_domain(self) -> Iterator[Json]:
        for owner in self._every_set():
            found = msgspec.convert(owner, PodCliqueSet)
            for replica in range(self._replicas):
                desired = of_set(found, SetDomainKey(replica, ""))
                made = desired.manifest(desired.names[0], CREATED)
                made["metadata"] |= {"uid": f"{found.metadata.uid}-{replica}", "resourceVersion": "1"}
                yield made | {"status": {"status": "Ready", "nodes": NODES}}


def _page(resource: Resource[Any], items: list[Json]) -> ListPage[Any]:
    return decoding.page(resource, json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode())[0]


def main() -> None:
    sets, replicas = map(int, sys.argv[1:])
    api = LargeCluster(sets, replicas)
    view = ClusterView(api, api, "gkm-system")
    growth = {}
    for reflector in view.watches():
        before = memory_of("self", "VmRSS")
        reflector._list()
        growth[reflector.resource.plural] = memory_of("self", "VmRSS") - before
    print(json.dumps(growth))


if __name__ == "__main__":
    main()
