"""All controllers in one process, with every feature, on an API in memory: what they watch, and how they end."""

import json
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from threading import Event, Thread
from threading import enumerate as enumerate_threads
from typing import Any

import pytest
from gkm.api import crds
from gkm.api.config import Config, parse
from gkm.kube.api import EVERYTHING
from gkm.kube.controller import Controller
from gkm.kube.elector import Elector
from gkm.kube.leases import LEASES
from gkm.kube.resources import DEFINITIONS
from gkm.probes import addresses
from gkm_operator import controllers, metrics
from support.host.waiting import scaled, until
from support.kube.fake_api import FakeApi
from support.kube.fake_watch import FakeWatch
from support.operator.plans import RAW_RUNS, run
from support.operator.topology import TOPOLOGY

SYSTEM, LEASE = "gkm-system", "gkm-controllers"
CONFIG = {
    "topology": TOPOLOGY | {"nodeLabels": True, "kueue": "racks", "kai": "racks"},
    "taskGroups": {"enabled": True},
    "capture": {"registry": "registry.example/captures"},
    "packing": {"podGates": True},
    "kserve": {"enabled": True},
    "fabric": {"nodeConditions": True},
}
"""Every controller runs."""
WRITERS = {
    "verify 0",
    "status 0",
    "captures 0",
    "plans",
    "topology 0",
    "computedomains 0",
    "taskgroups 0",
    "gates 0",
    "kserve 0",
    "fabric 0",
    "installation",
}
"""A thread of each controller."""
WRITES = {"apply", "create", "merge", "delete"}


class Process:
    def __init__(self, api: FakeApi, config: Config, leading: Sequence[Controller]) -> None:
        self.api = api
        self.leading = leading
        self._stop = Event()
        arguments = Namespace(
            kubeconfig=None,
            context=None,
            lease=LEASE,
            identity="me",
            webhook_configuration=(),
            health=addresses.parse("127.0.0.1:0"),
        )
        self._thread = Thread(target=controllers.run, args=(arguments, config, self._stop))
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        self._thread.join(scaled(30))
        assert not self._thread.is_alive()

    def watched(self) -> Counter[str]:
        """Return how many open watches each kind has."""
        return Counter(watch.resource.plural for watch in self._open())

    def _open(self) -> list[FakeWatch[Any]]:
        return [watch for watch in list(self.api._watches) if not watch.closed]

    def until_all_is_watched(self) -> None:
        last = {"nodes", "pods", "taskgroups", "hypernodes", "computedomains", "runs", "placementplans"}
        last |= {"nodefabrics", "kernelcaches"}

        def all_watch() -> bool:
            found = self._open()
            # The watch of pods selects nothing any more as soon as a second controller reads it.
            whole = {watch.resource.plural for watch in found if watch.selector == EVERYTHING}
            return last <= {watch.resource.plural for watch in found} and "pods" in whole and workers() >= WRITERS

        until(all_watch, "all controllers watch, and their threads work")


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    api = FakeApi()
    for definition in crds.definitions().values():
        api.create(DEFINITIONS, definition)
    monkeypatch.setattr(controllers, "connect", lambda *_arguments, **_more: api)
    # The leader before released it, so no request of that one is on its way, and this process may release it, too.
    metadata = {"name": LEASE, "namespace": SYSTEM}
    released = {"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": "2026-01-01T00:00:00.000000Z"}
    api.create(LEASES, {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": metadata, "spec": released})
    api.create(RAW_RUNS, run("r", 8))
    api.calls.clear()
    leading: list[Controller] = []

    def record_depths(found: Sequence[Controller]) -> None:
        assert ("merge", LEASES.plural, LEASE) in api.calls, "a replica that does not lead counts no queue"
        leading.extend(found)

    monkeypatch.setattr(metrics, "record_depths", record_depths)
    started = Process(api, parse(json.dumps(CONFIG).encode()), leading)
    yield started
    started.end()


def test_each_kind_has_one_list_and_one_watch(process: Process) -> None:
    """Also Pods, which agents, task groups, plans and ComputeDomains read: a wider watch follows the one before."""
    process.until_all_is_watched()
    assert process.leading
    assert [each.name for each in process.leading if not each.enabled] == [], (
        "a feature is off: its watches are not seen"
    )
    found = process.watched()
    assert {plural: count for plural, count in found.items() if count > 1} == {}
    lists = Counter(plural for verb, plural, name in process.api.calls if verb == "list" and not name)
    assert lists["nodes"] == 2, "one by the check at the start, which is of one object"


def test_no_object_is_written_before_the_lease_is_held_and_all_caches_and_nodes_are_listed(process: Process) -> None:
    process.until_all_is_watched()
    until(lambda: ("apply", "configmaps", "gkm-topology") in process.api.calls, "a controller has written")
    calls = list(process.api.calls)
    first = next(at for at, (verb, plural, _) in enumerate(calls) if verb in WRITES and plural != LEASES.plural)
    before = calls[:first]
    assert ("merge", LEASES.plural, LEASE) in before
    assert {"nodes", "gkmcaches", "clustergkmcaches", "gkmcachenodes"} <= {c[1] for c in before if c[0] == "watch"}


def workers() -> set[str]:
    """Return the threads that write: of queues, which have a number, and of controllers."""
    return {thread.name for thread in enumerate_threads() if not thread.name.startswith("watch ")}


def test_the_last_write_releases_the_lease_when_no_thread_is_left_that_could_write(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, left = Elector.release, list[set[str]]()

    def releasing(elector: Elector) -> None:
        left.append(workers())
        release(elector)

    monkeypatch.setattr(Elector, "release", releasing)
    process.until_all_is_watched()
    until(lambda: ("apply", "configmaps", "gkm-topology") in process.api.calls, "a controller has written")
    assert workers() >= WRITERS
    process.end()
    assert [names & WRITERS for names in left] == [set()]
    writes = [call for call in process.api.calls if call[0] in WRITES]
    assert writes[-1] == ("merge", LEASES.plural, LEASE)
    assert process.api.get(LEASES, LEASE, SYSTEM).spec.holder_identity == ""
