"""NVIDIA's compute-domain-controller v0.5.0 in both modes of IMEX, and what GKM and its doctor make of each.

In one mode the driver runs the IMEX daemons of a ComputeDomain, in the other the hosts do.
"""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from gkm.api.domain_readiness import MNNVLReadiness, parse_readiness
from gkm.api.mnnvl_metadata import MNNVL_READY
from support.cli.command import gkm
from support.domains.dra_cluster import DraCluster, phase, pod
from support.domains.gkm import Gkm
from support.domains.nvidia import COMMAND, SYSTEM, UID_LABEL, V050, V050_ON_HOSTS, Release
from support.grove.objects import compute_domain
from support.peers import require

NODES = 3
_NUMBERS = itertools.count(1)


@dataclass(frozen=True)
class Site:
    """A cluster with a release of NVIDIA's controller, and GKM's controllers."""

    dra: DraCluster

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.dra.nodes

    def create(self, name: str, team: str) -> str:
        """Create a ComputeDomain of a user; return its uid once it has its template."""
        self.dra.cluster.apply(compute_domain(name, namespace=team))
        self.dra.cluster.until(lambda: self.dra.template(name, team), "its template")
        return str(self.dra.domain(name, team)["metadata"]["uid"])

    def run(self, name: str, team: str, domain: str, node: str) -> None:
        """Start a pod of a domain on a node, and wait until it runs."""
        self.dra.cluster.apply(pod(name, team, domain, node=node))
        self.dra.running(name, team)

    def readiness(self, name: str, team: str) -> MNNVLReadiness | None:
        return parse_readiness(self.dra.domain(name, team)["metadata"].get("annotations", {}).get(MNNVL_READY))

    def until_reason(self, name: str, team: str, reason: str, pods: int = 0) -> MNNVLReadiness:
        """Wait for a reason, of `pods` if given: that of fewer comes first, and a number alone is written late."""

        def probe() -> MNNVLReadiness | None:
            found = self.readiness(name, team)
            if found is None or found.reason != reason:
                return None
            return found if pods in (0, found.expected) else None

        return self.dra.cluster.until(probe, f"the reason {reason} of {name} for {pods} pods")

    def doctor(self) -> tuple[int, str]:
        """Return the exit code of the check of the mode, and its sentence."""
        done = gkm("doctor", "--check", "domains/imex", "-o", "json", "--kubeconfig", self.dra.cluster.kubeconfig)
        (found,) = json.loads(done.stdout)
        return done.returncode, found["detail"]


def running(directory: Path, release: Release) -> Iterator[Site]:
    require.root()
    commands = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok")
    for command in (*commands, COMMAND, release.command):
        require.peer(command)
    with (
        require.absences(),
        DraCluster.start(directory / "dra", NODES, release) as dra,
        Gkm.installed(dra.cluster, directory / "gkm") as made,
    ):
        made.controllers()
        yield Site(dra)


@pytest.fixture(scope="module")
def on_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    yield from running(tmp_path_factory.mktemp("hosts"), V050_ON_HOSTS)


@pytest.fixture(scope="module")
def by_driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    yield from running(tmp_path_factory.mktemp("driver"), V050)


@pytest.fixture
def team(request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test alone, in the cluster that it uses."""
    site: Site = request.getfixturevalue("on_hosts" if "on_hosts" in request.fixturenames else "by_driver")
    with site.dra.namespace(f"team-{next(_NUMBERS)}") as name:
        yield name


def test_on_hosts_a_domain_has_a_template_and_nothing_on_nodes(on_hosts: Site, team: str) -> None:
    uid = on_hosts.create("train", team)
    dra = on_hosts.dra
    dra.cluster.until(lambda: dra.domain("train", team).get("status") == {"status": "Ready"}, "it to be Ready")
    (config,) = dra.template("train", team)["spec"]["spec"]["devices"]["config"]
    assert config["opaque"]["parameters"]["allocationMode"] == "Single"
    on_hosts.run("one", team, "train", on_hosts.nodes[0])
    assert not dra.daemon_set(uid)
    assert dra.cluster.objects.every("daemonsets", SYSTEM) == []
    assert UID_LABEL not in dra.cluster.get("node", on_hosts.nodes[0])["metadata"]["labels"]
    assert "nodes" not in dra.domain("train", team)["status"]


def test_on_hosts_a_domain_is_ready_when_its_pods_run(on_hosts: Site, team: str) -> None:
    on_hosts.create("train", team)
    for number in (0, 1):
        on_hosts.run(f"rank-{number}", team, "train", on_hosts.nodes[number])
    found = on_hosts.until_reason("train", team, "AllNodesReady", 2)
    assert (found.status, found.expected, found.joined, found.ready) == ("True", 2, 2, 2)
    assert "hostManaged" in found.message


def test_on_hosts_a_node_gives_its_channel_to_one_claim_at_a_time(on_hosts: Site, team: str) -> None:
    node = on_hosts.nodes[0]
    for name in ("first", "second"):
        on_hosts.create(name, team)
    on_hosts.run("of-first", team, "first", node)
    # It requests one GPU only: the channel is what it waits for.
    on_hosts.dra.cluster.apply(pod("of-second", team, "second", gpus=0, node=node))
    waiting = on_hosts.until_reason("second", team, "PodsPending")
    assert "pending: of-second" in waiting.message
    (unscheduled,) = on_hosts.dra.cluster.until(lambda: messages(on_hosts, team), "a pod without a channel")
    assert "cannot allocate all claims" in unscheduled
    on_hosts.dra.cluster.kubectl("delete", "pod", "of-first", "--namespace", team, "--wait=false")
    on_hosts.until_reason("second", team, "AllNodesReady")


def messages(site: Site, team: str) -> list[str]:
    return [
        condition.get("message", "")
        for found in site.dra.cluster.objects.every("pods", team)
        if phase(found) == "Pending"
        for condition in found["status"].get("conditions", ())
        if condition.get("reason") == "Unschedulable"
    ]


def test_on_hosts_the_doctor_says_so(on_hosts: Site) -> None:
    code, said = on_hosts.doctor()
    assert (code, "the hosts run the IMEX daemons (hostManaged)" in said) == (0, True)


def test_by_the_driver_a_domain_is_ready_when_its_daemons_are(by_driver: Site, team: str) -> None:
    uid = by_driver.create("train", team)
    dra = by_driver.dra
    dra.cluster.until(lambda: dra.daemon_set(uid), "its DaemonSet")
    by_driver.run("rank-0", team, "train", by_driver.nodes[0])
    # A young domain has no node in this mode, either: that is no sign of the other one.
    by_driver.until_reason("train", team, "NodesNotReady")
    assert dra.join(uid, team) == [by_driver.nodes[0]]
    found = by_driver.until_reason("train", team, "AllNodesReady")
    assert (found.status, found.joined, found.ready, len(found.cliques)) == ("True", 1, 1, 1)
    assert "hostManaged" not in found.message


def test_by_the_driver_the_doctor_says_so(by_driver: Site) -> None:
    code, said = by_driver.doctor()
    assert (code, "driverManaged" in said) == (0, True)
