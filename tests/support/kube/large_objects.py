"""Caches that a tenant fills up to a limit of the API server, and the memory of the processes that watch them."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

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
FULL, MANY = (200, ANNOTATION_BYTES), (20_000, 8 << 10)
"""Number of objects, and bytes of the annotations of each. 20,000 full ones exceed the 2 GiB of etcd."""
HEAVY = (pytest.mark.heavy, pytest.mark.timeout(1800))
_CLIENTS = 8


@contextmanager
def filled_namespace(cluster: Cluster, count: int, size: int) -> Iterator[None]:
    """Fill a namespace with caches as a user who may edit it; empty it in the end."""
    _give_namespace(cluster)
    try:
        create(cluster, range(count), size)
        yield
    finally:
        _empty(cluster)


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
