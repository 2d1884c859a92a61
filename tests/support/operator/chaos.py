"""A storm over a cluster with controllers, and the expected status afterwards, computed from a full list."""

import random
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.resources import CLUSTERGKMCACHENODES, GKMCACHENODES, GKMCACHES, NODES, Resource
from support.cluster.cluster import Cluster
from support.operator.deployment import cache, node
from support.operator.nodes import kube_node, put

Json = dict[str, Any]
STATES = ("Ready", "Ready", "Ready", "Pending", "Failed", "Incompatible")
REASONS = ("ArchitectureMismatch", "DriverTooOld", "")
OTHER = "sha256:" + "0" * 64


@dataclass
class Storm:
    """Changes caches, node objects and Nodes at random; what the server refuses meanwhile is not done."""

    api: Api
    namespace: str
    images: Mapping[str, tuple[str, str]]
    """Reference and digest of the image of each cache."""
    chance: random.Random
    nodes: tuple[str, ...] = tuple(f"node-{number}" for number in range(6))
    counts: Counter[str] = field(default_factory=Counter)

    def begin(self) -> None:
        """Make every object once."""
        for name, (image, _) in self.images.items():
            put(self.api, GKMCACHES, cache(name, image, self.namespace))
        for name in self.nodes:
            put(self.api, NODES, kube_node(name))
            self._report(name)

    def step(self) -> None:
        """Do one thing."""
        act = self.chance.choice([self._report] * 8 + [self._forget, self._turn, self._turn, self._leave])
        name = self.chance.choice(self.nodes)
        if self.chance.random() < 0.1:
            act, name = self.chance.choice([self._touch, self._remake]), self.chance.choice([*self.images])
        try:
            act(name)
        except ApiError:
            self.counts["writes that got no answer"] += 1
        else:
            self.counts["writes"] += 1

    def _report(self, name: str) -> None:
        namespace = self.chance.choice([self.namespace, self.namespace, None])
        told: dict[str, Json] = {}
        for one, (_, digest) in self.images.items():
            if self.chance.random() < 0.8:
                pods = [
                    {"namespace": "a", "name": f"p{number}", "volumeId": f"v{number}", "digest": digest}
                    for number in range(self.chance.randrange(3))
                ]
                state, reason = self.chance.choice(STATES), self.chance.choice(REASONS)
                told[one] = {"state": state, "digest": self.chance.choice([digest, digest, OTHER]), "pods": pods}
                told[one] |= {"reason": reason} if state in ("Failed", "Incompatible") and reason else {}
        kind: Resource[Any] = GKMCACHENODES if namespace else CLUSTERGKMCACHENODES
        put(self.api, kind, node(name, told, namespace))

    def _forget(self, name: str) -> None:
        with suppress(ApiError):
            self.api.delete(GKMCACHENODES, name, self.namespace)

    def _turn(self, name: str) -> None:
        put(self.api, NODES, kube_node(name, self.chance.choice(["True", "True", "False"])))

    def _leave(self, name: str) -> None:
        with suppress(ApiError):
            self.api.delete(NODES, name)

    def _touch(self, name: str) -> None:
        self.api.merge(
            GKMCACHES, name, {"metadata": {"labels": {"touched": str(self.chance.random())}}}, self.namespace
        )

    def _remake(self, name: str) -> None:
        with suppress(ApiError):
            self.api.delete(GKMCACHES, name, self.namespace)
        put(self.api, GKMCACHES, cache(name, self.images[name][0], self.namespace))

    def differences(self, cluster: Cluster) -> list[str]:
        """Return the differences between the status of a cache and a full list."""
        caches = _list(cluster, "gkmcaches", self.namespace)
        told = _list(cluster, "gkmcachenodes", self.namespace)
        standing = {name: _ready(one) for name, one in _list(cluster, "nodes").items()}
        missing = [f"{name} is not there" for name in self.images.keys() - caches.keys()]
        return missing + [
            f"{name}: {key} is {found.get(key)!r}, not {wanted!r}"
            for name, one in caches.items()
            for found in [one.get("status", {})]
            for key, wanted in truth(name, self.images[name][1], told, standing).items()
            if found.get(key) != wanted
        ]


def truth(name: str, digest: str, told: Mapping[str, Json], standing: Mapping[str, bool]) -> Json:
    """Return the expected status of a cache: docs/design/aggregation.md, "Liveness of a node", implemented anew."""
    here = {
        node_name: one["status"]["caches"][name]
        for node_name, one in told.items()
        if node_name in standing and name in one.get("status", {}).get("caches", {})
    }
    ready = [on for on, one in here.items() if (one["state"], one["digest"]) == ("Ready", digest) and standing[on]]
    by_state: dict[str, dict[str, list[str]]] = {"Failed": {}, "Incompatible": {}}
    for node_name, one in sorted(here.items()):
        if one["state"] in by_state and one["digest"] == digest:
            by_state[one["state"]].setdefault(one.get("reason") or one["state"], []).append(node_name)
    failed, misfits = by_state.values()
    incompatible = sum(map(len, misfits.values()))
    return {
        "resolvedDigest": digest,
        "totalNodes": len(here),
        "readyNodes": len(ready),
        "failedNodes": sum(map(len, failed.values())),
        "incompatibleNodes": incompatible,
        "podsUsing": sum(len(one.get("pods", [])) for one in here.values()),
        "ready": f"{len(ready)}/{len(here) - incompatible}",
        "failedNodeConditions": failed or None,
        "incompatibleNodeConditions": misfits or None,
    }


def _list(cluster: Cluster, plural: str, namespace: str | None = None) -> dict[str, Json]:
    return {one["metadata"]["name"]: one for one in cluster.objects.every(plural, namespace)}


def _ready(one: Json) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in one["status"].get("conditions", []))
