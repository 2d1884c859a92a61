"""A pod whose cache fits no GPU of the node: the agent learns that it waits, or it starts empty and is captured."""

import json
from collections.abc import Iterator

import pytest
from gkm.hoststate import waiting_pods
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState
from support.csi.driver import MAIN, Client, driver
from support.csi.namespaces import private_namespace
from support.csi.nodes import node_files
from support.csi.rig import Rig

pytestmark = pytest.mark.mounts
EMPTY = {"ifUnavailable": "empty"}
WAIT = {"ifUnavailable": "wait"}


@pytest.fixture
def rig() -> Iterator[Rig]:
    with (
        node_files() as files,
        private_namespace() as namespace,
        driver(files, namespace, MAIN, "--capture-mode", "auto") as running,
        Client(running.socket) as client,
    ):
        yield Rig(files, namespace, running, client)


def unfit(rig: Rig, state: CacheState = CacheState.INCOMPATIBLE) -> CacheRef:
    ref = CacheRef("ml-apps", "unfit")
    rig.files.pointer(ref, state, reason="ArchitectureMismatch", message="built for sm_90")
    return ref


@pytest.mark.parametrize(
    ("state", "attributes", "waits"),
    [
        (CacheState.INCOMPATIBLE, WAIT, True),
        (CacheState.INCOMPATIBLE, EMPTY, False),
        (CacheState.INCOMPATIBLE, {}, False),
        (CacheState.FAILED, WAIT, False),
        (CacheState.FAILED, {}, False),
        (CacheState.PENDING, WAIT, True),
        (CacheState.DOWNLOADING, {}, True),
    ],
)
def test_the_agent_learns_that_a_pod_waits(
    rig: Rig, state: CacheState, attributes: dict[str, str], *, waits: bool
) -> None:
    ref = unfit(rig, state)
    volume, target = rig.volume()
    if attributes != WAIT and state is not CacheState.DOWNLOADING:
        rig.client.publish(volume, target, {"cacheName": ref.name, **attributes})
    else:
        final = state in (CacheState.INCOMPATIBLE, CacheState.FAILED)
        refusal = "FAILED_PRECONDITION" if final else "UNAVAILABLE"
        code, text = rig.refused(volume, target, {"cacheName": ref.name, **attributes})
        assert (code, f"GKMCache {ref.namespace}/{ref.name} is {state.value}" in text) == (refusal, True), text
    assert waiting_pods.is_pod_waiting(rig.files.layout, ref) is waits


@pytest.mark.parametrize(("attributes", "captured"), [(EMPTY, True), (EMPTY | {"capture": "false"}, False), ({}, True)])
def test_what_a_pod_without_a_cache_compiles_is_captured_in_auto(
    rig: Rig, attributes: dict[str, str], *, captured: bool
) -> None:
    ref = unfit(rig)
    volume, target = rig.volume()
    rig.client.publish(volume, target, {"cacheName": ref.name, **attributes})
    assert rig.record(volume).digest == ""
    (rig.namespace.inside(target) / "kernel.json").write_text("{}")
    rig.client.unpublish_as_kubelet(volume, target)

    place = rig.files.layout.captured / volume
    assert place.exists() is captured
    if captured:
        described = json.loads((place / "captured.json").read_text())
        assert (described["digest"], described["family"]) == ("", ref.name)
        assert (place / "content" / "kernel.json").read_text() == "{}"
