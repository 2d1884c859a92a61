"""The loop on a real node: a pod compiles, its kernels become a signed cache, and the next pod compiles nothing."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from gkm.hoststate import counters
from support.agent.capturing import H100_KERNEL
from support.cluster import gkm_objects as objects
from support.cluster.gkm_objects import MOUNT, Object
from support.e2e.families import SECONDS, capturing
from support.e2e.fleet import CACHE, Fleet
from support.e2e.volumes import layout

KERNEL = "add_kernel.cubin"


@pytest.fixture(scope="module")
def on_request(fleet: Fleet) -> Iterator[Fleet]:
    """The node with a registry and a signer for captures."""
    with capturing(fleet, "request"):
        yield fleet


def program(name: str, namespace: str, kernels: Path, attributes: dict[str, str]) -> Object:
    """A pod whose program compiles as Triton does: it writes what its cache directory lacks, and loads what is there.

    The compiled files are those that the real Triton wrote for sm_90.
    """
    found = f'[ -s "{MOUNT}/{H100_KERNEL}/{KERNEL}" ] && echo hit || {{ cp -r /compiled/. {MOUNT}/ && echo compiled; }}'
    made = objects.pod(name, namespace, attributes, f"{found}; sha256sum {MOUNT}/{H100_KERNEL}/{KERNEL}")
    made["spec"]["volumes"].append({"name": "compiled", "hostPath": {"path": str(kernels)}})
    made["spec"]["containers"][0]["volumeMounts"].append(
        {"name": "compiled", "mountPath": "/compiled", "readOnly": True}
    )
    return made


def test_what_one_pod_compiles_the_next_one_mounts(on_request: Fleet, namespace: str, tmp_path: Path) -> None:
    fleet = on_request
    kernels = tmp_path / "kernels"
    shutil.copytree(CACHE / H100_KERNEL, kernels / H100_KERNEL)
    private = {"readOnly": "false", "mountPath": MOUNT, "capture": "true"}
    empty = private | {"cacheName": "nothing-yet", "ifUnavailable": "empty"}
    fleet.cluster.apply(program("first", namespace, kernels, empty))
    printed = fleet.ended("first", namespace).split()
    assert printed[0] == "compiled"

    def registered() -> Object | None:
        found = fleet.cluster.objects.every("gkmcaches", namespace)
        return found[0] if found else None

    cache = fleet.cluster.until(registered, "the capture to become a cache", SECONDS)
    name, image = cache["metadata"]["name"], cache["spec"]["image"]
    assert name.startswith("nothing-yet-sm90-")
    assert image.startswith(f"{fleet.olareg.host}/captured/{namespace}/triton@sha256:")
    assert fleet.cosign.verify(image)
    fleet.cluster.until(lambda: fleet.on_node(name, namespace).get("state") == "Ready", f"{name} on the node", SECONDS)
    assert fleet.condition(name, namespace, "Verified")["reason"] == "CosignSuccess"

    before = counters.load(layout(fleet)).layers
    captured = {path.name for path in layout(fleet).captured.iterdir()}
    fleet.cluster.apply(program("second", namespace, kernels, private | {"cacheName": name}))
    assert fleet.ended("second", namespace).split() == ["hit", *printed[1:]]
    fleet.kubectl("delete", "pod", "second", "--namespace", namespace, "--grace-period=0")
    fleet.until(lambda: not fleet.mounts(namespace), "the mounts to go")
    # The driver counts a private layer that stayed empty, and there is nothing of it to capture.
    fleet.cluster.until(lambda: counters.load(layout(fleet)).layers != before, "the layer to be counted", SECONDS)
    assert counters.load(layout(fleet)).layers == replace(before, empty=before.empty + 1)
    assert {path.name for path in layout(fleet).captured.iterdir()} == captured
