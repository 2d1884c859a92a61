"""Clusters for pods that follow plans: one where a scheduler binds them on nodes of kwok, one that is only objects."""

import json
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import fleet_place
import yaml
from fleet_load import put
from gkm.kube.resources import Json
from support.cluster import kwok
from support.cluster.cluster import Cluster
from support.cluster.control_plane import Options
from support.operator.deployment import MAIN, component, deployed
from support.operator.plans_site import FLAVOR, NAMESPACE, Site, plans_site
from support.topology.kueue import kueue
from support.topology.kueue_cluster import API, TOPOLOGY, queues, until_active

DOMAINS_A_BLOCK = 8
LONGEST_TTL = 86_400.0


def node(number: int, nodes_a_domain: int, gpus: int) -> Json:
    """Return a node of the fleet; its number says its domain."""
    domain = number // nodes_a_domain
    places = {"fabric.domain": f"d{domain:04}", "block": f"b{domain // DOMAINS_A_BLOCK:03}", "gpu.flavor": FLAVOR}
    return kwok.node(f"node-{number:06}", gpus=gpus, labels=places.items())


@contextmanager
def scheduled(directory: Path, nodes: list[Json]) -> Iterator[Site]:
    """Start the controllers beside kube-scheduler and kwok."""
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster.start(directory / "cluster", scheduler=True))
        deployed(cluster)
        stack.enter_context(kwok.kwok(cluster, directory / "kwok"))
        kwok.create_nodes(cluster, nodes)
        yield stack.enter_context(_planning(cluster, directory))


@contextmanager
def objects_only(directory: Path, nodes: list[Json]) -> Iterator[Site]:
    """Start the controllers on nodes that are objects; no other controller and no scheduler runs."""
    with ExitStack() as stack:
        control_plane = fleet_place.Alone(directory / "control-plane", Options())
        stack.callback(control_plane.close)
        control_plane.start()
        cluster = Cluster(directory, control_plane)
        deployed(cluster)
        put(control_plane.etcd, map(_stored, nodes))
        site = stack.enter_context(_planning(cluster, directory))
        meta = {"name": "default", "namespace": NAMESPACE}
        cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
        yield site


def _stored(node: Json) -> tuple[bytes, bytes]:
    """Return the key and the value of a node in the storage of the API server, as if it were Ready."""
    name = node["metadata"]["name"]
    born = {"uid": str(uuid.uuid5(uuid.NAMESPACE_DNS, name)), "creationTimestamp": "2026-01-01T00:00:00Z"}
    status = node["status"] | {"conditions": [{"type": "Ready", "status": "True"}]}
    found = node | {"metadata": node["metadata"] | born, "status": status}
    return f"/registry/minions/{name}".encode(), json.dumps(found).encode()


@contextmanager
def _planning(cluster: Cluster, directory: Path) -> Iterator[Site]:
    """Start the controllers as they ship, with gates; no plan expires."""
    cluster.apply([each for each in component("pod-gates") if "webhooks" not in each])
    with plans_site(cluster, directory) as site:
        config = directory / "config.yaml"
        packing = {"podGates": True, "namespaceShare": 100, "planTTL": LONGEST_TTL}
        config.write_text(yaml.safe_dump({"packing": packing}))
        site.start("bench", main=MAIN, arguments=(f"--config={config}",))
        yield site


@contextmanager
def beside_kueue(directory: Path, nodes: list[Json], gpus: int) -> Iterator[Site]:
    """Start the controllers and Kueue on the same nodes, with one queue for all GPUs."""
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster.start(directory / "cluster"))
        deployed(cluster)
        stack.enter_context(kwok.kwok(cluster, directory / "kwok"))
        kwok.create_nodes(cluster, nodes)
        stack.enter_context(kueue(cluster, directory / "kueue"))
        levels = [{"nodeLabel": label} for label in ("block", "fabric.domain", "kubernetes.io/hostname")]
        meta = {"name": TOPOLOGY}
        cluster.apply({"apiVersion": API, "kind": "Topology", "metadata": meta, "spec": {"levels": levels}})
        cluster.apply(list(queues(gpus, {"gpu.flavor": FLAVOR})))
        until_active(cluster)
        yield stack.enter_context(_planning(cluster, directory))
