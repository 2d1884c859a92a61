"""The real agent loses the real API server, refused or unheard, and takes up what changed when it is back.

Caches are for starting pods, and pods start on a node whose API server is away: nothing on the disk may depend on it.
"""

from collections.abc import Callable, Iterator

import pytest
from gkm.hoststate import records
from gkm.hoststate.pointers import CacheState
from support.agent.agent_on_api_server import Agent, Site, site
from support.agent.api_gate import Gate
from support.agent.machine import Machine
from support.cluster.cluster import Cluster
from support.host.waiting import until

NAMESPACE, NODE = "api-away", "api-away-node"
WAYS = pytest.mark.parametrize("goes_away", [Gate.shut, Gate.silence], ids=["refuses", "is mute"])
PATIENCE = 180.0
"""Seconds; a request that nobody answers takes 4, and the longest pause is 60."""


@pytest.fixture
def place(cluster: Cluster, machine: Machine) -> Iterator[Site]:
    with site(cluster, machine, NAMESPACE, NODE) as made:
        made.issue_for(NODE)
        made.declare("kept", "leaving")
        yield made


def ready(place: Site) -> None:
    expected = {"kept": "Ready", "leaving": "Ready"}
    place.cluster.until(lambda: place.states(NODE) == expected, "both caches are Ready", PATIENCE)


def change_behind_its_back(place: Site) -> None:
    place.delete("leaving")
    place.declare("coming")


def is_kept(place: Site) -> None:
    """Check that both caches can be mounted as before, also the one whose deletion nobody could hear of."""
    for name in ("kept", "leaving"):
        pointer = place.pointer(name)
        assert pointer is not None
        assert (pointer.state, pointer.digest) == (CacheState.READY, place.machine.digest)


def is_made_up_for(place: Site, agent: Agent) -> None:
    expected = {"kept": "Ready", "coming": "Ready"}
    place.cluster.until(lambda: place.states(NODE) == expected, f"all is said\n{agent.process.tail()}", PATIENCE)
    assert place.pointer("leaving") is None
    coming = place.pointer("coming")
    assert coming is not None
    assert coming.state is CacheState.READY
    until(lambda: agent.page("readyz") == (200, "ok\n"), "it is ready")


@WAYS
def test_an_api_server_that_becomes_unavailable_removes_no_cache(
    place: Site, goes_away: Callable[[Gate], None]
) -> None:
    with place.agent(NODE) as agent:
        ready(place)
        entry = place.entry()
        goes_away(place.gate)
        change_behind_its_back(place)
        # A pod starts meanwhile: that is news which the agent cannot bring.
        place.mount("kept")
        until(lambda: agent.heard("apply", "none"), "the agent has noticed", PATIENCE)

        is_kept(place)
        assert place.entry() == entry
        # No illness: a restart would not mend it, and what the node can do it does.
        assert agent.page("healthz") == (200, "ok\n")
        assert agent.page("readyz") == (200, "ok\n")

        place.gate.open()

        is_made_up_for(place, agent)
        place.cluster.until(
            lambda: (
                [
                    (pod["name"], pod["volumeId"])
                    for pod in place.object_of(NODE)["status"]["caches"]["kept"].get("pods", [])
                ]
                == [("pod-x", "csi-1")]
            ),
            "the pod that started meanwhile is told of",
            PATIENCE,
        )
        assert place.entry() == entry
        assert records.load(place.machine.layout, "csi-1") is not None
        assert agent.process.popen.poll() is None


@WAYS
def test_an_agent_that_starts_while_the_api_server_is_away_forgets_and_collects_nothing(
    place: Site, goes_away: Callable[[Gate], None]
) -> None:
    with place.agent(NODE):
        ready(place)
    entry = place.entry()
    place.mount("kept")
    goes_away(place.gate)
    change_behind_its_back(place)
    with place.agent(NODE) as agent:
        # A pass has ended and the GPUs were read: the answer would name them otherwise.
        waits = (503, "the source has not listed all caches yet\n")
        until(lambda: agent.page("readyz") == waits, "it works and waits", PATIENCE)
        until(lambda: agent.heard("list", "none"), "it has asked", PATIENCE)

        is_kept(place)
        assert place.entry() == entry
        assert agent.page("healthz") == (200, "ok\n")

        place.gate.open()

        is_made_up_for(place, agent)
        assert place.entry() == entry
