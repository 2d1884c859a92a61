"""A pod on a node where our driver does not run: kubelet says so in its event, and mounts once the driver runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.e2e.fleet import Fleet
from support.e2e.volumes import ready

ROOT = Path(__file__).resolve().parents[2]
SAID = "driver name csi.gkm.io not found in the list of registered CSI drivers"


def registered(fleet: Fleet) -> bool:
    drivers = fleet.cluster.get("csinode", fleet.cluster.node_name)["spec"].get("drivers") or []
    return any(driver["name"] == "csi.gkm.io" for driver in drivers)


@pytest.fixture
def without_driver(fleet: Fleet, namespace: str) -> Iterator[str]:
    """A namespace with a cache that is ready, on a node that kubelet knows no driver of ours on."""
    ready(fleet, namespace)
    fleet.kill("csi")
    # Of a driver that was killed the socket stays, and kubelet goes on calling it.
    (fleet.cluster.kubelet_root / "plugins_registry" / "csi.gkm.io-reg.sock").unlink()
    fleet.until(lambda: not registered(fleet), "kubelet to forget the driver")
    yield namespace
    if not registered(fleet):
        fleet.gkm.run("csi")


def test_the_event_says_that_the_node_has_no_driver_of_ours(fleet: Fleet, without_driver: str) -> None:
    fleet.pod("user", without_driver, "ls /cache", cacheName="llama")
    fleet.refused_mount("user", without_driver, saying=SAID)
    fleet.gkm.run("csi")
    assert fleet.ended("user", without_driver)


def test_the_words_are_those_that_the_reference_explains() -> None:
    assert SAID in (ROOT / "docs" / "reference" / "reasons.md").read_text(encoding="utf-8")
    assert SAID in (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
