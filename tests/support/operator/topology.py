"""The topology controller in steps, on an API in memory that checks the HyperNodes after every single write.

Nothing runs by itself: a test lets a process observe the API and reconcile what it then has to do.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gkm.api.config import Config, parse
from gkm.kube.api import Api, Change
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS, EVENTS, HYPERNODES, NODES, Json, Resource
from gkm.kube.workqueue import Retry
from gkm.topology.hypernodes import HyperNode, Member
from gkm_operator.hypernodes.controller import TopologyController
from gkm_operator.hypernodes.report import INTERVAL_SECONDS
from support.kube.fake_api import FakeApi
from support.kube.whole_objects import whole
from support.operator.nodes import put
from support.operator.plans import everything
from support.topology.volcano_rules import doubly_placed, violations

RAW_HYPERNODES = whole(HYPERNODES)
SOURCE = "volcano.sh/network-topology-source"
SYSTEM = "gkm-system"
LEVELS = ("rack", "block")
TOPOLOGY: Json = {
    "levels": [{"name": name, "keys": [name]} for name in LEVELS],
    "hyperNodes": {"enabled": True},
    "guard": {"percent": 20, "minimum": 8, "rounds": 3, "intervalSeconds": 60},
}
Labels = Mapping[str, str]


def settings(**topology: object) -> Config:
    """The configuration of most tests with other keys in its section `topology`."""
    return parse(json.dumps({"topology": TOPOLOGY | topology}))


class CheckedApi(FakeApi):
    """Records every violation of Volcano's rules; `states` counts what was checked."""

    def __init__(self) -> None:
        super().__init__()
        self.states = 0
        self.violations: list[str] = []
        self.history: list[Mapping[str, HyperNode]] = []

    def hypernodes(self, *, ours: bool = True) -> dict[str, HyperNode]:
        """What the API has now; without `ours`, of all sources."""
        found = {value["metadata"]["name"]: value for value in self.stored("hypernodes")}
        return {
            name: read(value)
            for name, value in found.items()
            if not ours or value["metadata"].get("labels", {}).get(SOURCE) == "gkm"
        }

    def _record(self, resource: Resource[Any], change: Change, value: Json) -> None:
        super()._record(resource, change, value)
        if resource.plural == "hypernodes":
            self.states += 1
            now = self.hypernodes()
            nodes = {value["metadata"]["name"] for value in self.stored("nodes")}
            wrong = [*violations(now), *(f"{node} is in two domains" for node in doubly_placed(now, nodes))]
            self.violations += [f"state {self.states}: {one}" for one in wrong]
            self.history.append(now)


def read(value: Json) -> HyperNode:
    """A HyperNode of the API, read without GKM's code."""
    spec = value["spec"]
    exact = [(one["type"], one["selector"]["exactMatch"]) for one in spec["members"] if "exactMatch" in one["selector"]]
    members = [Member(kind, match["name"]) for kind, match in exact]
    return HyperNode(value["metadata"]["name"], spec.get("tierName", ""), tuple(sorted(members)), spec["tier"])


def hypernode(name: str, tier: int, *members: str, nodes: Sequence[str] = (), source: str = "", **spec: Any) -> Json:  # noqa: ANN401 -- JSON
    """A HyperNode with such members; of nobody without a source."""
    listed = [("HyperNode", one) for one in members] + [("Node", one) for one in nodes]
    selectors = [{"type": kind, "selector": {"exactMatch": {"name": one}}} for kind, one in listed]
    labels = {SOURCE: source} if source else {}
    return {
        "apiVersion": RAW_HYPERNODES.api_version,
        "kind": "HyperNode",
        "metadata": {"name": name, "labels": labels},
        "spec": {"tier": tier, "members": selectors} | spec,
    }


def node(name: str, labels: Labels, gpus: int = 8) -> Json:
    """A Node with GPUs."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": dict(labels)},
        "status": {"allocatable": {"nvidia.com/gpu": str(gpus)}},
    }


class Process:
    """One leader: its caches of `api`; all of its requests go through it. Its clock stands still until told."""

    def __init__(self, api: Api, config: Config) -> None:
        self.seconds = 0.0
        self.controller = TopologyController(api, config, instance="test", namespace=SYSTEM)
        self._api = api

    def observe(self) -> None:
        """Look at the API server and list what is watched."""
        watcher = self.controller.watcher
        for sink in self.controller.sinks.values():
            sink.check(self._api)
        hypernodes = self.controller.sinks.get("hypernodes")
        of_volcano = (watcher.hypernodes,) if hypernodes is not None and hypernodes.available else ()
        for reflector in (*watcher.wanted, *of_volcano):
            reflector._list()

    def work(self) -> list[Exception]:
        """Let every part act once; return the errors."""
        controller = self.controller
        for source in controller.sources:
            source.refresh()
        controller.tree.reconcile(self.seconds)
        errors: list[Exception] = []
        for sink in controller.sinks.values():
            try:
                sink.reconcile()
            except (ApiError, Retry) as error:
                errors.append(error)
        return errors

    def report(self) -> None:
        """Write the report if it has changed."""
        self.seconds += INTERVAL_SECONDS
        self.controller.report.write(self.seconds)

    def condition(self, kind: str) -> Json:
        """A condition of the report, as it would be written now."""
        found = next(one for one in self.controller.overview.findings() if one.type == kind)
        return {"status": str(found.good), "reason": str(found.reason), "message": found.text}

    def settle(self, rounds: int = 20) -> None:
        """Act until there is nothing to do."""
        for _ in range(rounds):
            self.observe()
            before = self.controller.watcher.node_input.version, self.controller.watcher.hypernode_input.version
            errors = self.work()
            self.observe()
            after = self.controller.watcher.node_input.version, self.controller.watcher.hypernode_input.version
            if not errors and before == after:
                return
        raise AssertionError(f"it does not settle: {errors}")


class World:
    """Nodes with labels, and a process."""

    def __init__(self, nodes: Mapping[str, Labels] | None = None, config: Config | None = None) -> None:
        self.api = CheckedApi()
        self.config = config or settings()
        for name, labels in (nodes or {}).items():
            self.add(name, labels)

    def add(self, name: str, labels: Labels) -> None:
        put(self.api, NODES, node(name, labels))

    def label(self, name: str, **labels: str | None) -> None:
        self.api.merge(NODES, name, {"metadata": {"labels": labels}})

    def remove(self, name: str) -> None:
        self.api.delete(NODES, name)

    def process(self, sends: Api | None = None) -> Process:
        return Process(sends or self.api, self.config)

    def place(self, name: str) -> dict[str, str]:
        """The HyperNodes that a node lies in, by tier name."""
        found: dict[str, str] = {}
        written = self.api.hypernodes()
        member: Member | None = Member("Node", name)
        while member is not None:
            above = [one for one in written.values() if member in one.members]
            assert len(above) <= 1
            for one in above:
                found[one.tier_name] = one.name
            member = Member("HyperNode", above[0].name) if above else None
        return found

    def places(self) -> dict[str, dict[str, str]]:
        return {one["metadata"]["name"]: self.place(one["metadata"]["name"]) for one in everything(self.api, NODES)}

    def levels(self, name: str) -> dict[str, str]:
        """The labels of levels that a node has, without their prefix."""
        labels = self.api.get(NODES, name)["metadata"].get("labels", {})
        prefix = "level.gkm.io/"
        return {key.removeprefix(prefix): value for key, value in labels.items() if key.startswith(prefix)}

    def report(self) -> Json:
        """The data of the ConfigMap gkm-topology."""
        data: Json = self.api.get(CONFIGMAPS, "gkm-topology", SYSTEM)["data"]
        return data

    def events(self) -> list[tuple[str, str, str]]:
        """Type, reason and note of all Events."""
        return [(one["type"], one["reason"], one["note"]) for one in everything(self.api, EVENTS)]


def racks(blocks: int, racks_of_each: int, nodes_of_each: int) -> dict[str, dict[str, str]]:
    """Nodes in racks in blocks, with their labels."""
    return {
        f"node-{block}-{rack}-{number}": {"block": f"b{block}", "rack": f"r{block}-{rack}"}
        for block in range(blocks)
        for rack in range(racks_of_each)
        for number in range(nodes_of_each)
    }
