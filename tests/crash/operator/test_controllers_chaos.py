"""All faults at once around the real controllers; afterwards every status equals a full list.

`GKM_CHAOS_SECONDS=600 GKM_CHAOS_SEED=7 pytest -s tests/crash/operator/test_controllers_chaos.py`: longer, another.
"""

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from gkm.kube.client import connect
from gkm.kube.leases import LEASES
from support.cluster.cluster import Cluster
from support.operator.chaos import Storm
from support.operator.deployment import Shelf, deployed, has_lost_its_lease, operator
from support.peers import require
from support.registry.relay import Relay

if TYPE_CHECKING:
    from support.host.processes import Process

SECONDS = float(os.environ.get("GKM_CHAOS_SECONDS", "60"))
SEED = int(os.environ.get("GKM_CHAOS_SEED", "1"))
pytestmark = pytest.mark.timeout(SECONDS * 2 + 300)
NAMESPACE = "chaos"
STALL_SECONDS = 4.0
CUTS_A_SECOND = 5.0


class Ring:
    """A cluster of its own, whose API server the controllers reach through a relay."""

    def __init__(self, cluster: Cluster, relay: Relay, config: Path, stack: ExitStack) -> None:
        self.cluster = cluster
        self.relay = relay
        self.api = connect(str(cluster.kubeconfig))
        self.counts: Counter[str] = Counter()
        self._config = config
        self._stack = stack
        self._all: list[Process] = []
        self._running: dict[str, Process] = {}

    def start(self) -> None:
        """Start one more replica."""
        name = f"replica-{len(self._all)}"
        user: dict[str, object] = {"token": self.cluster.token("gkm-controllers", "gkm-system")}
        kubeconfig = self.cluster.control_plane.kubeconfig(name, user, server=f"https://{self.relay.host}")
        arguments = (
            "controllers",
            f"--config={self._config}",
            "--health=127.0.0.1:0",
            f"--kubeconfig={kubeconfig}",
            f"--identity={name}",
        )
        process = self._stack.enter_context(operator(self._config.parent / name, *arguments))
        self._all.append(process)
        self._running[name] = process

    def renew(self) -> None:
        """Start a replica for each that ended, as kubelet would."""
        for name, process in list(self._running.items()):
            if process.popen.poll() is not None:
                del self._running[name]
                self.counts["processes that ended"] += 1
                self.start()

    def leader(self) -> str:
        holder = self.api.get(LEASES, "gkm-controllers", "gkm-system").spec.holder_identity or ""
        return holder if holder in self._running else ""

    def kill_leader(self) -> None:
        name = self.cluster.until(self.leader, "a leader")
        self._running[name].kill()
        self.counts["leaders killed"] += 1
        self.renew()

    def stop_leader(self) -> None:
        """Stop the leader until another leads, and let it go on: for a moment both believe that they do."""
        name = self.cluster.until(self.leader, "a leader")
        process = self._running[name]
        process.popen.send_signal(signal.SIGSTOP)
        try:
            self.cluster.until(lambda: self.leader() not in ("", name), "another to lead")
        finally:
            process.popen.send_signal(signal.SIGCONT)
        self.counts["leaders that were followed while they stood still"] += 1
        self.cluster.until(lambda: process.popen.poll() is not None, "who was followed to end")
        assert has_lost_its_lease(process), process.tail()

    def stall_etcd(self) -> None:
        control_plane = self.cluster.control_plane
        process = control_plane.process("etcd")
        with control_plane.stalled("etcd"):
            # That it hangs for some seconds is the fault, not a wait for something.
            until = time.monotonic() + STALL_SECONDS
            while time.monotonic() < until and process.popen.poll() is None:
                time.sleep(0.1)
        self.counts["stalls of etcd"] += 1

    def forget(self) -> None:
        """Compact etcd's history and start an API server anew: its watch caches begin with now."""
        self.cluster.control_plane.compact()
        self.cluster.control_plane.restart_apiserver()
        self.counts["restarts of the API server"] += 1

    def said(self) -> Iterator[dict[str, Any]]:
        """Yield every line that any of the replicas logged."""
        for process in self._all:
            for line in process.log.read_text(encoding="utf-8", errors="replace").splitlines():
                if line.startswith("{") and line.endswith("}"):
                    yield json.loads(line)

    def summed(self) -> Counter[str]:
        """Return what happened, by kind."""
        for line in self.said():
            why = str(line.get("why", ""))
            if line.get("event") == "watch interrupted":
                self.counts["watches interrupted"] += 1
                self.counts["watches that were gone (410)"] += "Expired" in why or "too old" in why
            self.counts["times that one led"] += line.get("event") == "lease acquired"
        return self.counts


@pytest.fixture
def ring(images: Shelf, tmp_path: Path) -> Iterator[Ring]:
    for command in ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl"):
        require.peer(command)
    config = tmp_path / "config.yaml"
    config.write_text(images.config(), encoding="utf-8")
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster.start(tmp_path / "cluster"))
        deployed(cluster)
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        relay = stack.enter_context(Relay.start(cluster.url.removeprefix("https://")))
        relay.patience = 600.0
        yield Ring(cluster, relay, config, stack)


def test_after_all_faults_at_once_the_status_equals_a_full_list(ring: Ring, images: Shelf) -> None:
    chance = random.Random(SEED)
    storm = Storm(ring.api, NAMESPACE, {name: images.push(f"chaos-{name}") for name in ("a", "b", "c", "d")}, chance)
    storm.begin()
    ring.start()
    ring.start()
    ring.cluster.until(lambda: not storm.differences(ring.cluster), "the first sums")

    faults = [ring.forget, ring.stall_etcd, ring.kill_leader, ring.forget, ring.stop_leader]
    began = time.monotonic()
    due = [began + SECONDS * (number + 0.5) / len(faults) for number in range(len(faults))]
    cut = began
    while (now := time.monotonic()) < began + SECONDS or faults:
        storm.step()
        ring.renew()
        if now >= cut:
            ring.counts["connections cut"] += ring.relay.break_all(reset=chance.random() < 0.5)
            cut = now + chance.expovariate(CUTS_A_SECOND)
        if faults and now >= due[-len(faults)]:
            faults.pop(0)()

    def settled() -> bool:
        ring.renew()
        return not storm.differences(ring.cluster)

    try:
        ring.cluster.until(settled, "the status of all caches to be what a full list says", 90)
    finally:
        counts = storm.counts + ring.summed()
        print(f"seed {SEED}, {SECONDS:g} s:", json.dumps(counts, indent=1, sort_keys=True))  # noqa: T201 -- shown
    assert storm.differences(ring.cluster) == []
    assert counts["watches that were gone (410)"] > 0
    assert counts["connections cut"] >= SECONDS
