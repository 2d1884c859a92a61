"""A cluster as lists of Kubernetes, and the network of its hosts as ibnetdiscover prints it."""

import random
from dataclasses import dataclass
from pathlib import Path

from gkm.packing.values import Node
from gkm.topology.locations import Location
from packing_kube_lists import write_nodes
from support.topology.infiniband_networks import Rails, cabling, topology_file

GPUS = 8
DOMAIN_NODES, BLOCK_DOMAINS, CLUSTER_BLOCKS, REGION_CLUSTERS = 18, 16, 12, 2


@dataclass(frozen=True)
class Inputs:
    """The files."""

    nodes: Path
    survey: Path


def write(directory: Path, count: int, network: Rails, seed: int) -> Inputs:
    """Write the files."""
    order = random.Random(seed)
    nodes = [
        Node(f"gpu-{number:05}", _place(number), GPUS, order.choice((0, 0, 2, 4, 8, 8))) for number in range(count)
    ]
    order.shuffle(nodes)
    inputs = Inputs(directory / "nodes.json", directory / "survey.out")
    write_nodes(inputs.nodes, nodes)
    inputs.survey.write_bytes(topology_file(cabling(network)))
    return inputs


def _place(number: int) -> Location:
    domain = number // DOMAIN_NODES
    block = domain // BLOCK_DOMAINS
    cluster = block // CLUSTER_BLOCKS
    return Location(
        f"region-{cluster // REGION_CLUSTERS}", f"cluster-{cluster}", f"block-{block:03}", f"domain-{domain:04}"
    )
