"""Topology providers: the same statements against a plain queue, and as a pod runs them, with an API in memory.

The providers are the built-in ones, and the examples of the cookbook.
"""

import base64
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from gkm.api.topology_settings import TopologyProvider
from gkm.kube.resources import NODES as KUBE_NODES
from gkm.kube.resources import PROVIDER_TREES
from gkm.topology.hypernodes import HyperNode
from gkm.topology.provider_trees import HyperNodeSet
from gkm.topology.providers import Reply
from gkm_operator.hypernodes.providers import command, polling
from gkm_operator.hypernodes.providers.channel import ProviderChannel
from gkm_operator.hypernodes.providers.command import ProviderCode
from gkm_operator.hypernodes.providers.view import AgentReport
from support.host.waiting import until
from support.kube.fake_api import FakeApi
from support.operator.fabric_worlds import FABRICS, fabric
from support.operator.nodes import put
from support.operator.topology import node
from support.topology.observed import neighbors
from support.topology.provider_pods import LONG, pod
from support.topology.provider_run import ProviderRun
from support.topology.ufm_server import UfmServer

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "reference" / "examples"
NODES = ("n1", "n2", "n3", "n4")
FIRST = {"a": ["n1", "n2"], "b": ["n3"]}
SECRET = {"username": b"reader", "password": b"s3cret"}
Write = Callable[[dict[str, list[str]]], None]
Publish = Callable[[list[AgentReport]], None]
REFERENCES = {"inventory": "inventory_provider:Inventory", "netq": "netq_provider:NetQ"}


@dataclass
class Running:
    """A running provider, and how its source and the controllers change."""

    hypernodes: Callable[[], tuple[HyperNode, ...]]
    reply: Callable[[Reply], None]
    write: Write
    snapshots: Callable[[], int]

    def until_groups(self, wanted: dict[str, list[str]]) -> None:
        until(lambda: self.groups() == wanted, f"the groups {wanted}", LONG)

    def groups(self) -> dict[str, list[str]]:
        return {each.name: sorted(member.name for member in each.members) for each in self.hypernodes()}


def _text(name: str, groups: dict[str, list[str]]) -> object:
    """Return what the source of a provider says about groups of nodes."""
    cables = [(group, node) for group, nodes in groups.items() for node in nodes]
    match name:
        case "tree-file":
            return {"domains": [{"name": group, "level": "leaf", "nodes": nodes} for group, nodes in groups.items()]}
        case "netq":
            return [
                {"hostname": node, "ifname": "eth0", "peerHostname": group, "peerIfname": f"swp{number}"}
                for number, (group, node) in enumerate(cables)
            ]
        case "ufm":
            return [
                {"description": "Computer IB Port", "system_name": node, "peer_node_name": group}
                for group, node in cables
            ]
    return groups


@contextmanager
def source(name: str, directory: Path) -> Iterator[tuple[dict[str, Any], Write]]:
    """Yield the configuration of a provider, and what changes its source."""
    file = directory / "source"

    def write(groups: dict[str, list[str]]) -> None:
        (directory / "new").write_text(json.dumps(_text(name, groups)))
        (directory / "new").replace(file)

    config = {"file": str(file), "intervalSeconds": 0.1}
    if name == "lldp":
        yield {}, write
        return
    if name != "ufm":
        yield config, write
        return
    server = UfmServer([], ("/ufmRest", "Basic " + base64.b64encode(b"reader:s3cret").decode()))

    def serve(groups: dict[str, list[str]]) -> None:
        rows = _text(name, groups)
        assert isinstance(rows, list)
        server.rows = rows

    with server.start(directory):
        yield {"url": server.url, "caFile": str(server.ca_file), "intervalSeconds": 0.1}, serve


def _publishing(publish: Publish) -> Write:
    """Return what changes the source of the provider lldp, which is what agents report."""

    def write(groups: dict[str, list[str]]) -> None:
        leaves = {node: group for group, nodes in groups.items() for node in nodes}
        publish([neighbors(node, **({"eth0": leaves[node]} if node in leaves else {})) for node in NODES])

    return write


@contextmanager
def in_process(name: str, config: dict[str, Any], packages: Path, write: Write) -> Iterator[Running]:
    made = command.factory(REFERENCES.get(name, name), str(packages))(config, SECRET)
    count = [0]
    hypernodes = HyperNodeSet()
    with ProviderRun.of(made, *NODES) as run:
        if name == "lldp":
            write = _publishing(run.view.publish)
            write(FIRST)

        def read() -> tuple[HyperNode, ...]:
            event = run.next()
            hypernodes.apply(event, first=not count[0])
            count[0] += bool(event.hypernodes)
            return tuple(hypernodes.hypernodes.values())

        def snapshots() -> int:
            read()
            return count[0]

        yield Running(read, run.reply, write, snapshots)


@contextmanager
def in_a_pod(name: str, config: dict[str, Any], packages: Path, write: Write) -> Iterator[Running]:
    api, mounted = FakeApi(), packages.parent / "secret"
    for each in NODES:
        put(api, KUBE_NODES, node(each, {}))
    mounted.mkdir()
    for key, value in SECRET.items():
        (mounted / key).write_bytes(value)
    if name == "lldp":
        write = _cabling(api)
        write(FIRST)
    code = ProviderCode(REFERENCES.get(name, name), str(packages), mounted)
    sent = patch.object(ProviderChannel, "put", autospec=True, side_effect=ProviderChannel.put)
    with sent as put_event, pod(api, TopologyProvider(name, config), code) as running:
        running.serves()
        yield Running(
            running.hypernodes,
            lambda reply: _refuse(api, name, running.spec.revision, reply),
            write,
            lambda: sum(bool(call.args[1].hypernodes) for call in put_event.call_args_list),
        )
        assert running.spec.reason == ""
    assert running.code == 0


def _cabling(api: FakeApi) -> Write:
    """Return what changes the source of the provider lldp in an API."""

    def write(groups: dict[str, list[str]]) -> None:
        leaves = {each: group for group, nodes in groups.items() for each in nodes}
        for each in NODES:
            found = [leaves[each]] if each in leaves else []
            links = [{"interface": "eth0", "neighbour": {"chassisID": leaf, "portID": "1"}} for leaf in found]
            put(api, FABRICS, fabric(each, ethernet=links))

    return write


def _refuse(api: FakeApi, name: str, revision: int, reply: Reply) -> None:
    """Write what the controllers do when the API server refuses a HyperNode."""
    refused = [{"name": reply.name, "error": reply.error}]
    status = {"observedRevision": revision, "refused": refused}
    api.merge(PROVIDER_TREES, name, {"status": status}, subresource="status")


@pytest.fixture(params=["tree-file", "lldp", "ufm", "inventory", "netq"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[pytest.param(in_process, id="fake"), pytest.param(in_a_pod, id="real")])
def running(
    request: pytest.FixtureRequest, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Running]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    # A provider in this process sends again at its next event, and not ten seconds later.
    monkeypatch.setattr(polling, "_HEARTBEAT_SECONDS", 0.1)
    packages = tmp_path / "packages"
    packages.mkdir()
    for example in EXAMPLES.glob("*_provider.py"):
        (packages / example.name).write_text(example.read_text())
    with source(name, tmp_path) as (config, write):
        write(FIRST)
        with request.param(name, config, packages, write) as made:
            yield made


def test_the_first_event_has_all_hypernodes(running: Running) -> None:
    running.until_groups(FIRST)


def test_a_changed_source_changes_the_hypernodes(running: Running) -> None:
    running.until_groups(FIRST)
    running.write({"a": ["n1"], "b": ["n2", "n3"], "c": ["n4"]})
    running.until_groups({"a": ["n1"], "b": ["n2", "n3"], "c": ["n4"]})
    running.write({"c": ["n4"]})
    running.until_groups({"c": ["n4"]})


def test_after_an_error_the_hypernodes_are_sent_again(running: Running) -> None:
    running.until_groups(FIRST)
    before = running.snapshots()
    running.reply(Reply("a", "not written"))
    until(lambda: running.snapshots() > before, "another snapshot", LONG)
    assert running.groups() == FIRST
