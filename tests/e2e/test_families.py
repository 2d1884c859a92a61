"""A family on a real node: pods of one manifest run the real Triton, and no person edits an object in between."""

from collections.abc import Iterator

import pytest
from support.e2e.families import Family, capturing
from support.e2e.fleet import Fleet


@pytest.fixture(scope="module")
def just_in_time(fleet: Fleet) -> Iterator[Fleet]:
    """The node with a registry and a signer for captures, and a driver that captures private volumes."""
    with capturing(fleet, "auto"):
        yield fleet


@pytest.fixture
def on_request(fleet: Fleet) -> Iterator[Fleet]:
    """The same with a driver that captures no running pod of its own accord."""
    with capturing(fleet, "request"):
        yield fleet


def test_a_running_pod_requests_a_capture(on_request: Fleet, namespace: str) -> None:
    family = Family(on_request, namespace)
    name = family.warm(128)
    member = family.ready(1, on_request.cluster.node_name)
    assert on_request.cluster.get("pod", name, namespace)["status"]["phase"] == "Running"
    assert on_request.cosign.verify(member["spec"]["image"])


def test_pods_of_one_manifest_compile_each_kernel_once(just_in_time: Fleet, namespace: str) -> None:
    fleet, node = just_in_time, just_in_time.cluster.node_name
    family = Family(fleet, namespace)
    assert family.compiled(128) == [False]
    first = family.ready(1, node)
    assert family.compiled(128) == [True]
    assert family.compiled(128, 256) == [True, False]
    second = family.ready(2, node)
    assert family.layers(second)[:-1] == family.layers(first)
    assert fleet.cosign.verify(second["spec"]["image"])
    assert family.compiled(128, 256) == [True, True]

    for name in ("agent", "controllers", "csi"):
        fleet.kill(name)
        fleet.gkm.run(name)
    assert family.compiled(256, 128) == [True, True]
    assert set(family.generations()) == {1, 2}

    pin = '{"spec": {"pinned": true}}'
    fleet.kubectl("patch", "gkmcache", first["metadata"]["name"], "--namespace", namespace, "--type=merge", "-p", pin)
    fleet.until(lambda: family.on_node(first, node).get("chosen"), "the node to follow the pin")
    assert family.compiled(128, 256) == [True, False]
