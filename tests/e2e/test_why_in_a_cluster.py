"""`gkm why` and `gkm cache list` beside a real kubelet: what they report is what pods and kubelet see."""

import json
from typing import Any

from gkm.hoststate import counters
from gkm.hoststate.layout import Layout
from support.cli.command import gkm
from support.cluster.gkm_objects import MOUNT
from support.e2e.fleet import Fleet
from support.images.archives import mcv_image


def steps(fleet: Fleet, pod: str, namespace: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the exit code, and the result of every link."""
    done = gkm("why", pod, "-n", namespace, "--kubeconfig", fleet.cluster.kubeconfig, "-o", "json")
    assert done.stdout, done.stderr
    return done.returncode, {step["check"]: step for step in json.loads(done.stdout)}


def broken(fleet: Fleet, pod: str, namespace: str) -> str:
    code, found = steps(fleet, pod, namespace)
    (link,) = (name for name, step in found.items() if step["state"] == "broken")
    assert code == 3, found[link]
    return link


def test_a_pod_that_reads_its_cache_has_no_broken_link(fleet: Fleet, namespace: str) -> None:
    fleet.declare("llama", namespace, fleet.image("llama"))
    fleet.reaches("llama", namespace, "Ready")
    fleet.pod("user", namespace, f"ls {MOUNT}; sleep 300", cacheName="llama", mountPath=MOUNT)

    def mounted() -> bool:
        code, found = steps(fleet, "user", namespace)
        # Between the start of the pod and the next report of the agent, the detail says that.
        return code == 0 and found["mount"]["detail"].endswith("is mounted")

    fleet.until(mounted, "every link to hold")
    listed = gkm("cache", "list", "-n", namespace, "--kubeconfig", fleet.cluster.kubeconfig, "-o", "json")
    assert [(one["name"], one["ok"]) for one in json.loads(listed.stdout)] == [("llama", True)]


def test_a_pod_that_waits_has_the_link_that_breaks_it(fleet: Fleet, namespace: str) -> None:
    fleet.pod("user", namespace, "true", cacheName="amd", mountPath=MOUNT)
    fleet.refused_mount("user", namespace, saying="is not known")
    assert broken(fleet, "user", namespace) == "object"
    fleet.declare("amd", namespace, fleet.image("amd", built=mcv_image()))
    fleet.reaches("amd", namespace, "Incompatible")
    assert broken(fleet, "user", namespace) == "preflight"


def test_what_a_program_adds_to_its_layer_is_counted_when_the_pod_goes(fleet: Fleet, namespace: str) -> None:
    layout = Layout(fleet.gkm.state, fleet.gkm.run_directory)
    before = counters.load(layout).layers
    fleet.declare("llama", namespace, fleet.image("llama"))
    fleet.reaches("llama", namespace, "Ready")
    private = {"cacheName": "llama", "mountPath": MOUNT, "readOnly": "false"}
    for pod, script in (("hits", f"ls {MOUNT}"), ("misses", f"echo compiled > {MOUNT}/kernel.cubin")):
        fleet.pod(pod, namespace, script, **private)
        fleet.ended(pod, namespace)
    fleet.kubectl("delete", "pods", "--all", "-n", namespace, "--wait=false")

    def counted() -> bool:
        now = counters.load(layout).layers
        return (now.empty - before.empty, now.written - before.written) == (1, 1)

    fleet.until(counted, "both layers to be counted")
    assert counters.load(layout).layers.written_bytes - before.written_bytes == 4096
