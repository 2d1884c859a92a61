"""kill -9 of a process of ours, then a restart: it ends Ready and mounted."""

from collections.abc import Iterator

import pytest
from support.cluster.gkm_objects import MOUNT
from support.e2e.fleet import Fleet


@pytest.fixture(params=["agent", "csi", "controllers"])
def killed(fleet: Fleet, request: pytest.FixtureRequest) -> Iterator[str]:
    """A process of ours, to be killed; it runs again afterwards whatever happened."""
    name = str(request.param)
    yield name
    if fleet.gkm.processes[name].popen.poll() is not None:
        fleet.gkm.run(name)


def test_killed_before_anything_is_asked_it_catches_up(fleet: Fleet, namespace: str, killed: str) -> None:
    image = fleet.image("late")
    fleet.kill(killed)
    fleet.declare("late", namespace, image)
    fleet.pod("user", namespace, f"ls {MOUNT} | wc -l", cacheName="late")
    fleet.gkm.run(killed)
    assert fleet.ended("user", namespace).strip() == "2"


def test_killed_while_a_pod_runs_the_pod_keeps_its_cache_and_ends_cleanly(
    fleet: Fleet, namespace: str, killed: str
) -> None:
    fleet.declare("kept", namespace, fleet.image("kept"))
    fleet.reaches("kept", namespace, "Ready")
    fleet.pod("user", namespace, "sleep 300", cacheName="kept")
    fleet.until(lambda: fleet.mounts(namespace), "the volume to be mounted")
    fleet.kill(killed)
    fleet.gkm.run(killed)
    fleet.until(lambda: fleet.cluster.get("pod", "user", namespace)["status"]["phase"] == "Running", "the pod to run")
    assert fleet.kubectl("exec", "-n", namespace, "user", "--", "ls", MOUNT).split()
    fleet.kubectl("delete", "pod", "user", "-n", namespace, "--grace-period=0")
    fleet.until(lambda: not fleet.mounts(namespace), "the mount to go")


def test_killed_while_a_pod_is_taken_down_nothing_stays_mounted(fleet: Fleet, namespace: str) -> None:
    fleet.declare("gone", namespace, fleet.image("gone"))
    fleet.reaches("gone", namespace, "Ready")
    fleet.pod("user", namespace, "sleep 300", cacheName="gone")
    fleet.until(lambda: fleet.mounts(namespace), "the volume to be mounted")
    fleet.kill("csi")
    fleet.kubectl("delete", "pod", "user", "-n", namespace, "--grace-period=0", "--wait=false")
    fleet.gkm.run("csi")
    fleet.until(lambda: not fleet.mounts(namespace), "the mount to go")
