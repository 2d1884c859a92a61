"""Clusters whose agents report cables, the pods of their providers, and what these see."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from gkm.api.config import Config, parse
from gkm.api.fabrics import SURVEY_KEY
from gkm.kube.resources import Json, Resource
from gkm_operator.hypernodes.providers import command
from gkm_operator.hypernodes.providers.cluster_watch import ClusterWatch, SurveyFeed
from gkm_operator.hypernodes.providers.command import ProviderCode
from gkm_operator.hypernodes.providers.view import LiveView
from support.host.waiting import until
from support.operator.nodes import put
from support.operator.topology import SYSTEM, TOPOLOGY, Process, World
from support.topology.infiniband_networks import Rails, adapter_guid
from support.topology.observed import packed
from support.topology.provider_pods import pod

FABRICS: Resource[Json] = Resource("gkm.io/v1alpha1", "NodeFabric", "nodefabrics", namespaced=False, type=Json)
NETWORK = Rails(groups=2, hosts_each=3, rails=2, spines=2)
SURVEYOR = "node-000"
OTHER = "node-001"
NODES = {f"node-{number:03}": position for number, position in enumerate(NETWORK.hosts)}
BY_GROUP = [sorted(name for name in NODES if NODES[name][2] == group) for group in range(2)]
LONG = 120.0


def settings(provider: str, **topology: object) -> Config:
    chosen = {"ibnetdiscover": {"nodes": [SURVEYOR], "nodeSelector": {"surveys": "yes"}}}
    levels = {"levels": [{"name": "leaf"}, {"name": "spine"}], "providers": [{"name": provider}]}
    return parse(json.dumps({"topology": TOPOLOGY | levels | topology, "fabric": chosen}))


def survey(node: str, text: bytes) -> Json:
    labels = {"gkm.node": node, "app.kubernetes.io/part-of": "gkm"}
    metadata = {"name": f"gkm-ibnetdiscover-{node}", "namespace": SYSTEM, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {SURVEY_KEY: packed(text).decode()}}


def fabric(node: str, **status: object) -> Json:
    head = {"apiVersion": FABRICS.api_version, "kind": "NodeFabric", "metadata": {"name": node}}
    return head | {"spec": {"nodeName": node}, "status": status}


def ports(node: str, state: str = "ACTIVE") -> list[Json]:
    _, pod, group, number = NODES[node]
    return [
        {"device": f"mlx5_{rail}", "port": 1, "portGUID": adapter_guid(pod, group, number, rail), "state": state}
        for rail in range(NETWORK.rails + 1)  # the last port has no cable
    ]


def world_with(provider: str, **topology: object) -> World:
    world = World({name: {} for name in NODES}, settings(provider, **topology))
    for name in NODES:
        neighbors = [{"interface": "eth0", "neighbour": {"chassisID": f"leaf-{NODES[name][2]}", "portID": "1"}}]
        put(world.api, FABRICS, fabric(name, infiniband=ports(name), ethernet=neighbors))
    return world


def groups(world: World) -> list[list[str]]:
    """The nodes of each leaf group."""
    found = world.api.hypernodes().values()
    return sorted([member.name for member in one.members] for one in found if one.tier_name == "leaf")


def until_it(process: Process, probe: Callable[[], object], what: str) -> None:
    """Let a process act until something is true."""

    def acted() -> bool:
        process.observe()
        process.work()
        return bool(probe())

    until(acted, what, LONG)


@contextmanager
def running(world: World) -> Iterator[Process]:
    """A process of the controllers, and the pod of each provider."""
    with ExitStack() as pods:
        for provider in world.config.topology.providers:
            pods.enter_context(pod(world.api, provider, ProviderCode(provider.name), world.config))
        process = world.process()
        process.observe()
        yield process


class Watching:
    """What a built-in provider sees, in steps: nothing is watched by itself."""

    def __init__(self, world: World, provider: str = "infiniband") -> None:
        self.view = LiveView()
        reads = command.reads(provider)
        self.watch = ClusterWatch(world.api, world.config, self.view, namespace=SYSTEM, reads=reads)
        self.surveys = SurveyFeed(world.api, self.watch, self.view, SYSTEM)

    def observe(self) -> None:
        for reflector in self.watch.wanted:
            reflector._list()


def until_groups(world: World, process: Process, wanted: list[list[str]]) -> None:
    until_it(process, lambda: groups(world) == wanted, f"the groups {wanted}")
