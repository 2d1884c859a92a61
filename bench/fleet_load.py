"""A fleet in the API server: one node of it made through the API, the others copied in its storage.

Through the API, 10,000 nodes are 50,000 writes: on two cores five minutes. A copy reads like the first: the stored
bytes are the same but for name and uid (the server stores built-in kinds as protobuf and reads
the JSON that is written here as well; its cache, which answers lists and watches, has them decoded in either case).
"""

import base64
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import urllib3
from fleet_objects import Object, agent_pod, agent_pod_status, node, node_name, pod_name, report, status
from fleet_place import NAMESPACE, FleetCluster
from gkm.kube.errors import ApiError
from gkm.kube.resources import GKMCACHENODES, NODES, Json, Resource
from support.host.waiting import until

AGENT = "gkm-agent"
PODS: Resource[Json] = Resource("v1", "Pod", "pods", namespaced=True, type=Json)
REPORTS: Resource[Json] = Resource("gkm.io/v1alpha1", "GKMCacheNode", "gkmcachenodes", namespaced=True, type=Json)
BATCH_BYTES = 700_000
"""etcd takes requests of 1.5 MiB and 128 puts in one."""
BATCH_PUTS = 100
CATCH_UP_SECONDS = 300.0


@dataclass(frozen=True)
class Stored:
    """An object as the server stores it, and its key; both hold the node's name."""

    key: str
    value: bytes
    uid: str

    @classmethod
    def of(cls, key: str, found: Json) -> "Stored":
        """Return an object as stored: without its resourceVersion."""
        meta = {name: value for name, value in found["metadata"].items() if name != "resourceVersion"}
        return cls(key, msgspec.json.encode({**found, "metadata": meta}), meta["uid"])


def load(place: FleetCluster, first: int, last: int) -> dict[str, float]:
    """Add the nodes from `first` up to but without `last`; return the sizes of the objects of one, in bytes."""
    kinds = _templates(place) if first == 0 else _read(place)
    put(place.etcd, _copies(kinds, range(max(first, 1), last)))
    _check(place, last - 1)
    return {
        f"{name}_bytes": float(len(stored.value)) for name, stored in zip(("node", "pod", "report"), kinds, strict=True)
    }


def put(etcd: str, pairs: Iterable[tuple[bytes, bytes]]) -> None:
    """Write keys and values into the storage of the API server.

    Raises:
        RuntimeError: etcd refused a batch.
    """
    pool = urllib3.PoolManager()
    written = 0
    for batch in _batches(pairs):
        answer = pool.request("POST", f"{etcd}/v3/kv/txn", json={"success": batch}, retries=False, timeout=60.0)
        if answer.status != 200:  # noqa: PLR2004 -- OK
            raise RuntimeError(f"etcd did not take the copies: {answer.status} {answer.data[:300]!r}")
        written += len(batch)
        if sys.stderr.isatty():
            sys.stderr.write(f"\rfleet: {written} objects copied")


def _templates(place: FleetCluster) -> tuple[Stored, Stored, Stored]:
    """Make the first node through the API, as its kubelet and its agent do."""
    name, api = node_name(0), place.api
    made = api.create(NODES, node(name))
    if made["spec"].get("taints"):
        # The server gives a new Node the taint not-ready; the controller that takes it away does not run here.
        api.merge(NODES, name, {"spec": {"taints": None}})
    api.create(PODS, agent_pod(name))
    api.apply(PODS, agent_pod_status(name), field_manager="kubelet", subresource="status")
    whole = report(name, NAMESPACE, status(place.digests, {}), made["metadata"]["uid"])
    api.apply(GKMCACHENODES, {key: whole[key] for key in whole if key != "status"}, field_manager=AGENT)
    identity = {"name": name, "namespace": NAMESPACE}
    api.apply(
        GKMCACHENODES,
        {"apiVersion": whole["apiVersion"], "kind": whole["kind"], "metadata": identity, "status": whole["status"]},
        field_manager=AGENT,
        subresource="status",
    )
    return _read(place)


def _read(place: FleetCluster) -> tuple[Stored, Stored, Stored]:
    name = node_name(0)
    system = agent_pod(name)["metadata"]["namespace"]
    return (
        Stored.of(f"/registry/minions/{name}", place.api.get(NODES, name)),
        Stored.of(f"/registry/pods/{system}/{pod_name(name)}", place.api.get(PODS, pod_name(name), system)),
        Stored.of(f"/registry/gkm.io/gkmcachenodes/{NAMESPACE}/{name}", place.api.get(REPORTS, name, NAMESPACE)),
    )


def _copies(kinds: tuple[Stored, ...], numbers: Iterable[int]) -> Iterator[tuple[bytes, bytes]]:
    old = node_name(0).encode()
    for number in numbers:
        new = node_name(number).encode()
        for stored in kinds:
            value = stored.value.replace(old, new)
            for uid in (kind.uid for kind in kinds):
                value = value.replace(uid.encode(), f"{uid[:-8]}{number:08x}".encode())
            yield stored.key.encode().replace(old, new), value


def _batches(pairs: Iterable[tuple[bytes, bytes]]) -> Iterator[list[Object]]:
    batch: list[Object] = []
    size = 0
    for key, value in pairs:
        batch.append({"requestPut": {"key": _b64(key), "value": _b64(value)}})
        size += len(value)
        if size >= BATCH_BYTES or len(batch) >= BATCH_PUTS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _check(place: FleetCluster, number: int) -> None:
    """Wait until the server has taken all copies into its cache, and see that it reads one as it reads the first."""
    for resource in (NODES, PODS, REPORTS):
        until(lambda: _listed(place, resource), f"a list of {resource.plural}", CATCH_UP_SECONDS)  # noqa: B023
    name = node_name(number)
    found: list[Any] = [place.api.get(NODES, name), place.api.get(REPORTS, name, NAMESPACE)]
    found.append(place.api.get(PODS, pod_name(name), agent_pod(name)["metadata"]["namespace"]))
    if any(name not in json.dumps(one["metadata"]) for one in found):
        raise RuntimeError(f"the copies for {name} are not what the API server says")


def _listed(place: FleetCluster, resource: Resource[Json]) -> bool:
    """Return whether the server answers from its cache; it refuses (429, 504) while that lags behind its storage."""
    try:
        return next(iter(place.api.list_pages(resource, limit=1)), None) is not None
    except ApiError:
        return False


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
