"""Caches in an API server with the status that a controller would write, and the node objects that follow."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import msgspec
from gkm.api.meta import timestamp
from gkm.kube.api import Api
from gkm.kube.reflector import Reflector
from gkm.kube.resources import GKMCACHENODES, GKMCACHES, Json
from support.cluster.gkm_objects import cache
from support.kube.whole_objects import whole

AT_A_TIME = 8
_NODE_OBJECTS = whole(GKMCACHENODES)


@dataclass(frozen=True)
class Wanted:
    """A cache: its image is named with its digest."""

    namespace: str
    name: str
    image: str


def declare(api: Api, caches: Iterable[Wanted]) -> None:
    """Create caches and write at once that each is verified, as the controller does.

    Where the policies of all of deploy/base hold, `api` is that of support.kube.our_kinds.status_writer.
    """
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        list(pool.map(partial(_declare, api), caches))


def delete(api: Api, caches: Iterable[Wanted]) -> None:
    """Delete caches."""
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        list(pool.map(lambda wanted: api.delete(GKMCACHES, wanted.name, wanted.namespace), caches))


def _declare(api: Api, wanted: Wanted) -> None:
    made = cache(wanted.name, wanted.namespace, wanted.image)
    api.create(GKMCACHES, made)
    verified = {
        "type": "Verified",
        "status": "True",
        "reason": "CosignSuccess",
        "message": "signed",
        "lastTransitionTime": timestamp(),
    }
    digest = wanted.image.partition("@")[2]
    status = {"image": wanted.image, "resolvedDigest": digest, "conditions": [verified]}
    kind = {key: made[key] for key in ("apiVersion", "kind", "metadata")}
    api.apply(GKMCACHES, {**kind, "status": status}, field_manager="bench", subresource="status")


class NodeObjects:
    """The node objects of all namespaces, from a watch: polling would load the server."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._seen: Reflector[Json] = Reflector(api, _NODE_OBJECTS, lambda _old, _new: None)

    def start(self) -> None:
        """Begin to watch."""
        self._seen.start()

    def close(self) -> None:
        """End the watch."""
        self._seen.close()

    def are_ready(self, caches: Iterable[Wanted]) -> bool:
        """Return whether exactly these caches are listed, all of them Ready."""
        states = {
            (seen["metadata"]["namespace"], name): said["state"]
            for seen in self._seen.values()
            for name, said in seen.get("status", {}).get("caches", {}).items()
        }
        return states == {(wanted.namespace, wanted.name): "Ready" for wanted in caches}

    def are_deleted(self) -> bool:
        """Return whether no cache is listed."""
        return not self._seen.values()

    def remove(self) -> None:
        """Delete all."""
        for seen in self._seen.values():
            self._api.delete(_NODE_OBJECTS, seen["metadata"]["name"], seen["metadata"]["namespace"])

    def largest_bytes(self) -> int:
        """Return the size of the largest one as JSON, managedFields included."""
        return max(len(msgspec.json.encode(seen)) for seen in self._seen.values())
