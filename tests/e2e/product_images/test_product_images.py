"""GKM as users run it: our images in pods of a real kubelet, installed by the chart with all that it takes away."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cluster.cluster import KubectlFailed
from support.cluster.deployment import PARTS
from support.cluster.gkm_objects import MOUNT
from support.e2e.fleet import Fleet
from support.e2e.product_images import Deployed

# The first test of them also builds the images, unless they exist.
pytestmark = [pytest.mark.images, pytest.mark.own_node, pytest.mark.timeout(900)]
UNPRIVILEGED = [part for part in PARTS if part != "gkm-csi"]
NO_CAPABILITIES = "0" * 16
FILTERED = "2"
"""Seccomp in /proc/<pid>/status: a filter is in force."""
MIB = 1024
RESIDENT = ("VmRSS", "VmHWM")


@pytest.fixture
def fleet(deployed: Deployed) -> Fleet:
    return deployed.fleet


@pytest.fixture
def namespace(fleet: Fleet) -> Iterator[str]:
    name = fleet.new_namespace()
    yield name
    fleet.empty(name)


def runs(fleet: Fleet, namespace: str, pod: str) -> None:
    fleet.until(lambda: fleet.cluster.get("pod", pod, namespace)["status"]["phase"] == "Running", f"{pod} to run")


@pytest.mark.parametrize("part", UNPRIVILEGED)
def test_a_process_has_no_privilege_at_all(deployed: Deployed, part: str) -> None:
    process = deployed.pods.process(part)
    for held in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert process.status(held) == NO_CAPABILITIES, held
    assert process.status("NoNewPrivs") == "1"
    assert process.status("Seccomp") == FILTERED
    assert process.status("Uid").split() == ["0" if part == "gkm-agent" else "65532"] * 4


@pytest.mark.parametrize("part", PARTS)
def test_a_container_never_restarted_and_stays_within_what_it_requests(deployed: Deployed, part: str) -> None:
    pod = deployed.pods.ready(part)
    (container,) = pod["spec"]["containers"]
    now, most = (int(deployed.pods.process(part).status(field).removesuffix(" kB")) // MIB for field in RESIDENT)
    print(f"{part}: {now} MiB resident, at most {most}")  # noqa: T201 -- shown by -rP, for people who size nodes
    assert most <= int(container["resources"]["requests"]["memory"].removesuffix("Mi"))
    # The last state has the exit code and, by the termination message policy, the last lines of the log.
    restarts = [(status["restartCount"], status["lastState"]) for status in pod["status"]["containerStatuses"]]
    assert restarts == [(0, {})]


def test_a_signed_cache_becomes_ready_and_a_pod_reads_it_and_cannot_write(fleet: Fleet, namespace: str) -> None:
    fleet.declare("llama", namespace, fleet.image("llama"))

    def ready() -> bool:
        status = fleet.cluster.get("gkmcache", "llama", namespace).get("status", {})
        return bool(status.get("ready") == "1/1")

    fleet.until(ready, "1/1")
    fleet.pod("user", namespace, f"ls {MOUNT} | wc -l; touch {MOUNT}/new || echo refused", cacheName="llama")
    printed = fleet.ended("user", namespace)
    assert printed.splitlines()[0] == "2"
    assert "Read-only file system" in printed
    assert "refused" in printed


def test_an_unsigned_image_is_refused_by_way_of_the_service(fleet: Fleet, namespace: str) -> None:
    with pytest.raises(KubectlFailed) as refusal:
        fleet.declare("unsigned", namespace, fleet.image("unsigned", signed=False))
    assert "no signature was found" in refusal.value.stderr


def test_new_pods_of_ours_leave_the_mount_of_a_running_pod_alone(
    deployed: Deployed, fleet: Fleet, namespace: str
) -> None:
    fleet.declare("used", namespace, fleet.image("used"))
    fleet.reaches("used", namespace, "Ready")
    script = f"while sleep 0.1; do ls {MOUNT}/* > /dev/null || exit 1; done"
    fleet.pod("user", namespace, script, cacheName="used")
    runs(fleet, namespace, "user")
    before = deployed.mounted(namespace)
    assert len(before) == 1
    for part in ("gkm-agent", "gkm-csi"):
        deployed.pods.replace(part)
    runs(fleet, namespace, "user")
    assert deployed.mounted(namespace) == before
    assert fleet.kubectl("exec", "-n", namespace, "user", "--", "ls", MOUNT).split()
    fleet.kubectl("delete", "pod", "user", "-n", namespace, "--grace-period=0")
    fleet.until(lambda: not fleet.mounts(namespace), "the record to go")
    target = before[0].split()[4]
    assert target not in Path("/proc/self/mountinfo").read_text()
    assert not Path(target).exists()


def test_a_private_layer_outlives_the_driver_that_made_it_and_ends_with_its_pod(
    deployed: Deployed, fleet: Fleet, namespace: str
) -> None:
    fleet.declare("own", namespace, fleet.image("own"))
    fleet.reaches("own", namespace, "Ready")
    script = f"echo mine > {MOUNT}/mine; while sleep 0.1; do grep -q mine {MOUNT}/mine || exit 1; done"
    fleet.pod("user", namespace, script, cacheName="own", readOnly="false", mountPath=MOUNT, capture="true")
    runs(fleet, namespace, "user")
    before = deployed.mounted(namespace)
    assert len(before) == 1
    deployed.pods.replace("gkm-csi")
    runs(fleet, namespace, "user")
    assert deployed.mounted(namespace) == before
    fleet.kubectl("delete", "pod", "user", "-n", namespace, "--grace-period=0")
    fleet.until(lambda: not fleet.mounts(namespace), "the record to go")
    assert before[0].split()[4] not in Path("/proc/self/mountinfo").read_text()
    (captured,) = (deployed.pods.state / "captured").glob("*/content")
    assert [(path.name, path.read_text()) for path in captured.iterdir()] == [("mine", "mine\n")]


def test_the_agent_collects_the_entry_of_a_deleted_cache_without_capabilities(
    deployed: Deployed, fleet: Fleet, namespace: str
) -> None:
    fleet.declare("gone", namespace, fleet.image("gone"))
    digest = fleet.reaches("gone", namespace, "Ready")["digest"].removeprefix("sha256:")
    entry = deployed.pods.state / "store" / "sha256" / digest
    sealed = [entry / "cache", *(entry / "cache").rglob("*")]
    assert all(path.stat().st_mode & 0o222 == 0 for path in sealed)  # which CAP_DAC_OVERRIDE would not care about
    fleet.kubectl("delete", "gkmcache", "gone", "-n", namespace)
    fleet.until(lambda: not entry.exists(), "the entry to be collected")
    fleet.until(lambda: not list((deployed.pods.state / "trash").iterdir()), "the trash to be empty")
