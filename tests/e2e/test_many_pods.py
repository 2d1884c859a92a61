"""Many pods at once, while the driver and kubelet are killed again and again: each sees its cache, nothing is left.

GKM_PODS says how many pods; the driver is killed half as often.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from support.cluster.gkm_objects import MOUNT, Object
from support.cluster.installation import COMMANDS
from support.e2e.fleet import Fleet
from support.e2e.volumes import NAMED, PRIVATE, container, layout, left, mounted, pod, ready, recorded, tree, volume
from support.host.processes import Process
from support.host.waiting import until

PODS = int(os.environ.get("GKM_PODS", "30"))
KILLS = PODS // 2
CACHES = ("alpha", "beta", "gamma", "delta")
LABEL = "of=many"
PATIENCE = 2.0
SECONDS = 600.0
"""kubelet waits two minutes at most before it asks again for a volume that failed often."""

log = logging.getLogger(__name__)


@pytest.fixture
def mended(fleet: Fleet) -> Iterator[None]:
    """The driver runs and answers again afterwards, whatever happened."""
    yield
    if fleet.gkm.processes["csi"].popen.poll() is not None:
        fleet.gkm.run("csi")


@pytest.mark.timeout(2400)
@pytest.mark.usefixtures("mended")
def test_many_pods_see_their_caches_and_leave_nothing_while_processes_are_killed(fleet: Fleet, namespace: str) -> None:
    entries = {name: ready(fleet, namespace, name) for name in CACHES}
    stored = {name: tree(entry) for name, entry in entries.items()}
    fleet.until(lambda: not of_pods(fleet), "what earlier pods had to go")
    before = mounts(fleet)

    pods = dict(enumerate(f"pod-{number}" for number in range(PODS)))
    create(fleet, namespace, pods.items())
    amid = disturb(fleet, KILLS // 3)
    check(fleet, namespace, pods)

    def replace(number: int) -> None:
        delete(fleet, namespace, pods[number])
        pods[number] = f"successor-{number}"
        create(fleet, namespace, [(number, pods[number])])

    amid += disturb(fleet, KILLS // 3, replace)
    check(fleet, namespace, pods)

    delete(fleet, namespace, "--all")
    amid += disturb(fleet, KILLS - 2 * (KILLS // 3))
    fleet.cluster.until(lambda: not left(fleet), "every record, layer and mount to go", SECONDS)
    fleet.cluster.until(lambda: not of_pods(fleet), "everything that the pods had to go", SECONDS)
    assert mounts(fleet) == before
    assert {name: tree(entry) for name, entry in entries.items()} == stored
    told = f"{PODS} pods, driver killed {KILLS} times ({amid} amid its work), kubelet 3 times"
    log.info("%s, mounts before and after: %d", told, len(before))


def cache(number: int) -> str:
    return CACHES[number % len(CACHES)]


def is_private(number: int) -> bool:
    return number // len(CACHES) % 2 == 1


def create(fleet: Fleet, namespace: str, pods: Iterable[tuple[int, str]]) -> None:
    """Create pods that say which cache they see, and leave their own name in a private volume."""
    made: list[Object] = []
    script = f"[ -w {MOUNT} ] && hostname > {MOUNT}/mine; echo $(cat {MOUNT}/{NAMED}); exec sleep 86400"
    for number, name in pods:
        attributes = {"cacheName": cache(number), "mountPath": MOUNT} | (PRIVATE if is_private(number) else {})
        # A container that kubelet was about to start when it was killed has failed: without a restart, its pod, too.
        one = pod(name, namespace, [container(script)], [volume(attributes)], restartPolicy="Always")
        one["metadata"]["labels"] = dict([LABEL.split("=")])
        made.append(one)
    fleet.cluster.apply({"apiVersion": "v1", "kind": "List", "items": made})


def delete(fleet: Fleet, namespace: str, which: str) -> None:
    fleet.kubectl("delete", "pods", which, "--namespace", namespace, "--wait=false", "--grace-period=0")


def check(fleet: Fleet, namespace: str, pods: dict[int, str]) -> None:
    """Every pod has printed the name of its cache, and sees it and its own file, and no other pod has a volume."""
    wanted = {name: cache(number) for number, name in pods.items()}
    fleet.cluster.until(lambda: printed(fleet, namespace).keys() == wanted.keys(), "every pod to print", SECONDS)
    assert printed(fleet, namespace) == wanted
    fleet.cluster.until(lambda: len(recorded(fleet)) == len(mounted(fleet)) == PODS, "a volume for each", SECONDS)
    assert seen_from_outside(fleet, namespace) == {
        name: (cache(number), name if is_private(number) else "") for number, name in pods.items()
    }


def disturb(fleet: Fleet, kills: int, act: Callable[[int], None] = lambda _: None) -> int:
    """Kill the driver again and again, the last time together with kubelet; return how often it was amid its work."""
    amid = 0
    for number in range(kills):
        volumes = set(layout(fleet).volumes.iterdir())
        act(number)
        amid += works(fleet, volumes, 1 + number % 3)
        fleet.kill("csi")
        if number < kills - 1:
            start_driver(fleet)
    fleet.cluster.restart_kubelet()
    fleet.gkm.run("csi")
    return amid


def start_driver(fleet: Fleet) -> None:
    """Start the driver as `fleet.gkm.run` does, without waiting for it: it is to be killed whatever it is doing."""
    module, *words = COMMANDS["csi"](fleet.gkm)
    command = [sys.executable, "-m", str(module), *words]
    fleet.gkm.processes["csi"] = Process.start("gkm-csi", command, fleet.gkm.directory / "csi.log", fleet.gkm.machine)


def works(fleet: Fleet, before: set[Path], volumes: int) -> bool:
    """Wait until the driver has published or unpublished so many, at most for `PATIENCE`; tell whether it has.

    Where kubelet waits before it asks again, nothing comes: then it is killed at its start, or with nothing to do.
    """
    place = layout(fleet).volumes
    try:
        return until(lambda: len(before ^ set(place.iterdir())) >= volumes, "volumes", PATIENCE, every=0.002)
    except TimeoutError:
        return False


def printed(fleet: Fleet, namespace: str) -> dict[str, str]:
    """What each pod has printed so far."""
    words = ["logs", f"--selector={LABEL}", "--prefix", "--tail=-1", f"--max-log-requests={2 * PODS}"]
    lines = fleet.kubectl(*words, "--ignore-errors", "--namespace", namespace).splitlines()
    said = (line.split(" ", 1) for line in lines if line.startswith("[pod/"))
    return {where.split("/")[1]: text for where, text in said}


def seen_from_outside(fleet: Fleet, namespace: str) -> dict[str, tuple[str, str]]:
    """The cache, and what the pod wrote, in each mount that a record names."""
    found = {}
    for record in recorded(fleet, namespace):
        target = Path(record.target_path)
        mine = target / "mine"
        found[record.pod_name] = ((target / NAMED).read_text(), mine.read_text().strip() if mine.exists() else "")
    return found


def mounts(fleet: Fleet) -> list[str]:
    """The lines of mountinfo about this node: those of others on the machine, and of containerd, are not ours to count.

    A task that containerd was creating when kubelet was killed stays, with the container's file system: CRI reports the
    container as exited, and refuses to remove it (containerd's issue 11037, seen with 1.6.20).
    """
    runtime = f" {fleet.cluster.directory / 'node' / 'containerd'}/"
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    of_node = (line for line in lines if str(fleet.cluster.directory.parent) in line or " gkm:" in line)
    return sorted(line for line in of_node if runtime not in line)


def of_pods(fleet: Fleet) -> list[str]:
    """The mounts that there are only while there are pods: kubelet's and ours."""
    return [line for line in mounts(fleet) if f" {fleet.cluster.kubelet_root / 'pods'}/" in line]
