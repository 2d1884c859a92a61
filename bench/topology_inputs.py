"""A cluster of 100,000 GPUs as lists of Kubernetes, and the network of 10,000 hosts as ibnetdiscover prints it."""

import random
from dataclasses import dataclass
from pathlib import Path

from gkm.packing.values import Node
from gkm.topology.locations import Location
from packing_kube_lists import write_nodes, write_pods
from support.topology.infiniband_networks import Rails, cabling, topology_file

NODES, GPUS = 12_500, 8
DOMAIN_NODES, BLOCK_DOMAINS, CLUSTER_BLOCKS, REGION_CLUSTERS = 18, 16, 12, 2
NETWORK = Rails(pods=10, groups=25, hosts_each=40, rails=8, spines=16, cores=8)
HOSTS = 10_000


@dataclass(frozen=True)
class Inputs:
    """The files, and the size of the network's in bytes."""

    nodes: Path
    pods: Path
    survey: Path
    survey_bytes: int


def write(directory: Path, seed: int) -> Inputs:
    """Write the files."""
    order = random.Random(seed)
    nodes = [
        Node(f"gpu-{number:05}", _place(number), GPUS, order.choice((0, 0, 2, 4, 8, 8))) for number in range(NODES)
    ]
    order.shuffle(nodes)
    paths = directory / "nodes.json", directory / "pods.json", directory / "survey.out"
    write_nodes(paths[0], nodes)
    write_pods(paths[1], nodes)
    text = topology_file(cabling(NETWORK))
    paths[2].write_bytes(text)
    return Inputs(*paths, len(text))


def _place(number: int) -> Location:
    domain = number // DOMAIN_NODES
    block = domain // BLOCK_DOMAINS
    cluster = block // CLUSTER_BLOCKS
    return Location(
        f"region-{cluster // REGION_CLUSTERS}", f"cluster-{cluster}", f"block-{block:03}", f"domain-{domain:04}"
    )
