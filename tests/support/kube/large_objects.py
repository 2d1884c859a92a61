"""Caches that a tenant fills up to a limit of the API server, and the memory of the processes that watch them."""

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from gkm.kube.api import ListSelector
from gkm.kube.client import connect
from gkm.kube.resources import GKMCACHES, Json
from support.chart.deploy_files import rendered
from support.cluster.cluster import Cluster
from support.cluster.rights import until_rights_hold

NAMESPACE = "crowded"
TENANT = "mallory"
ANNOTATION_BYTES = 240 << 10
HEAVY = (pytest.mark.heavy, pytest.mark.timeout(1800))
_CLIENTS = 8
_TRANSACTION_BYTES = 1 << 20


@dataclass(frozen=True)
class Crowd:
    """A number of objects, and the bytes of the annotations of each."""

    count: int
    size: int
    large: bool = False
    """Whether they need a cluster for gigabytes: the shared one holds each object several times in memory."""

    @property
    def more(self) -> range:
        """Return the numbers of objects that come while processes run."""
        return range(self.count, self.count + 16)


FULL, MANY = Crowd(200, ANNOTATION_BYTES), Crowd(20_000, 32 << 10, large=True)
"""20,000 full ones exceed the 2 GiB of etcd, and a list of 2 GB takes longer than etcd keeps its revision."""


@contextmanager
def crowded(shared: Cluster, crowd: Crowd, directory: Path, prepare: Callable[[Cluster], None]) -> Iterator[Cluster]:
    """Yield a cluster with a namespace that a user who may edit it has filled with caches.

    It is the shared one, which is emptied in the end, or one in `directory` that `prepare` has prepared.
    """
    if not crowd.large:
        with _filled_namespace(shared, crowd):
            yield shared
        return
    with Cluster.start(directory, large=True) as cluster:
        prepare(cluster)
        _give_namespace(cluster)
        create(cluster, range(1), crowd.size)
        _copy(cluster, crowd)
        yield cluster


@contextmanager
def _filled_namespace(cluster: Cluster, crowd: Crowd) -> Iterator[None]:
    _give_namespace(cluster)
    try:
        create(cluster, range(crowd.count), crowd.size)
        yield
    finally:
        _empty(cluster)


def _copy(cluster: Cluster, crowd: Crowd) -> None:
    """Store the first cache under the names of all others, as the API server stores it: requests take an hour."""
    path = f"/registry/gkm.io/gkmcaches/{NAMESPACE}/cache-"
    stored: Json = json.loads(cluster.control_plane.stored(f"{path}0"))
    at_once = max(1, _TRANSACTION_BYTES // crowd.size)
    for first in range(1, crowd.count, at_once):
        numbers = range(first, min(first + at_once, crowd.count))
        cluster.control_plane.store({f"{path}{number}": _named(stored, number, crowd.size) for number in numbers})


def _named(stored: Json, number: int, size: int) -> bytes:
    own = large_cache(number, size)["metadata"]
    metadata = {**stored["metadata"], "name": own["name"], "annotations": own["annotations"], "uid": str(uuid4())}
    return json.dumps({**stored, "metadata": metadata}).encode()


def create(cluster: Cluster, numbers: range, size: int) -> None:
    """Create caches as the tenant."""
    api = connect(str(cluster.kubeconfig_for(TENANT)))
    with ThreadPoolExecutor(_CLIENTS) as pool:
        for _ in pool.map(lambda number: api.create(GKMCACHES, large_cache(number, size)), numbers):
            pass


def large_cache(number: int, size: int) -> Json:
    """Return a cache for no node, with annotations of a size and many labels."""
    metadata = {
        "name": f"cache-{number}",
        "namespace": NAMESPACE,
        "annotations": {"example.test/text": f"{number}".ljust(size, "x")},
        "labels": {f"label-{each}": "v" * 63 for each in range(32)},
    }
    spec = {"image": "127.0.0.1:1/team/cache:1", "nodeSelector": {"pool": "none"}}
    return {"apiVersion": "gkm.io/v1alpha1", "kind": "GKMCache", "metadata": metadata, "spec": spec}


def peak_mib(pid: int) -> float:
    """Return the most memory that a process has had resident, in MiB (VmHWM of proc(5))."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    peak = next(line for line in lines if line.startswith("VmHWM:"))
    return int(peak.split()[1]) / 1024


def _empty(cluster: Cluster) -> None:
    """Delete one by one: the API server ends a request for all of them after a minute."""
    api = connect(str(cluster.kubeconfig))
    pages = api.list_pages(GKMCACHES, ListSelector(NAMESPACE))
    names = [entry.name for page in pages for entry in page.entries]
    with ThreadPoolExecutor(_CLIENTS) as pool:
        for _ in pool.map(lambda name: api.delete(GKMCACHES, name, NAMESPACE), names):
            pass


def _give_namespace(cluster: Cluster) -> None:
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    cluster.apply(rendered() / "base" / "users.yaml")
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "gkm-edit"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": TENANT}
    binding: Mapping[str, object] = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "editor", "namespace": NAMESPACE},
        "roleRef": role,
        "subjects": [subject],
    }
    cluster.apply(binding)
    until_rights_hold(cluster)
