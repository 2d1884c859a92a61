"""An object that was deleted and made again under its name: what the one before had access to proves nothing for it."""

import errno
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Event
from typing import Any

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.hoststate import pointers
from gkm.hoststate.pointers import CacheState
from gkm.kube.resources import GKMCACHES, Resource
from gkm_agent.caches import approvals as checks
from gkm_agent.caches.model import PullHold, WantedCache
from gkm_agent.kubernetes.source import KubernetesSource
from gkm_agent.pulls.scheduler import PullScheduler
from support.agent.fakes import digest_of
from support.agent.node import IMAGE, REF, Node
from support.host.waiting import scaled
from support.kube.fake_api import FakeApi

ONE = digest_of("one")
WHOLE = Resource(GKMCACHES.api_version, GKMCACHES.kind, GKMCACHES.plural, GKMCACHES.namespaced, dict[str, Any])
CLOSED = GKMError(Reason.UNAUTHORIZED, "the registry refuses: pull access denied")
AWAY = GKMError(Reason.REGISTRY_UNAVAILABLE, "the registry does not answer")
ALONG = [pytest.param(False, id="running"), pytest.param(True, id="away")]
SERVE_REVOKED = [pytest.param(False, id="withdraw"), pytest.param(True, id="keep")]


def declare(node: Node, uid: str, hold: PullHold | None = None) -> None:
    digest = ONE if hold is None else None
    node.source.wanted = [WantedCache(REF, IMAGE, digest, hold, uid=uid)]


def served(node: Node, *, serve_revoked: bool) -> Node:
    node.serve_revoked = serve_revoked
    node.restart()
    declare(node, "uid-of-one-tenant")
    assert node.settle()
    node.images.calls.clear()
    return node


@pytest.mark.parametrize("away", ALONG)
@pytest.mark.parametrize("serve_revoked", SERVE_REVOKED)
@pytest.mark.parametrize("failure", [CLOSED, AWAY], ids=["closed", "no answer"])
@pytest.mark.parametrize("step", ["verify", "describe"])
def test_another_tenants_object_is_not_ready_without_access(
    node: Node,
    away: bool,  # noqa: FBT001
    serve_revoked: bool,  # noqa: FBT001
    failure: GKMError,
    step: str,
) -> None:
    served(node, serve_revoked=serve_revoked)
    node.images.failures[step] = failure
    declare(node, "uid-of-another-tenant")
    if away:
        node.restart()
    assert not node.settle()
    assert (node.pointer().state, node.pointer().reason) == (CacheState.FAILED, failure.reason)
    assert node.status().state == "Failed"
    # The object names the digest: its entry waits for the proof, and is not fetched again.
    assert node.entries() == {ONE}
    node.images.failures.clear()
    node.now += 3600
    assert node.settle()
    assert "fetch" not in node.images.steps()
    assert node.pointer().uid == "uid-of-another-tenant"


@pytest.mark.parametrize("serve_revoked", SERVE_REVOKED)
@pytest.mark.parametrize(
    "hold",
    [PullHold("", "waiting"), PullHold("SignatureMissing", "none", final=True, digest=ONE)],
    ids=["waiting", "refused"],
)
def test_another_object_that_the_controller_holds_is_not_ready(node: Node, serve_revoked: bool, hold: PullHold) -> None:  # noqa: FBT001
    served(node, serve_revoked=serve_revoked)
    declare(node, "uid-of-another-tenant", hold)
    node.restart()
    node.settle()
    assert node.pointer().state is (CacheState.FAILED if hold.final else CacheState.PENDING)
    assert node.images.steps() == []


def without_uids(node: Node) -> None:
    """Leave the files as an agent wrote them that knew of no UIDs."""
    path = node.layout.pointer(REF)
    for file in (path, path.with_name(checks.FILE)):
        held = json.loads(file.read_text())
        held.pop("uid")
        file.write_text(json.dumps(held))


@pytest.mark.parametrize("serve_revoked", SERVE_REVOKED)
def test_a_pointer_without_a_uid_is_unproven_and_not_lost(node: Node, serve_revoked: bool) -> None:  # noqa: FBT001
    served(node, serve_revoked=serve_revoked)
    without_uids(node)
    found = pointers.load(node.layout, REF)
    assert found is not None
    assert (found.state, found.digest, found.uid) == (CacheState.READY, ONE, "")
    node.images.failures["verify"] = AWAY
    node.restart()
    assert not node.settle()
    assert node.pointer().state is CacheState.FAILED
    assert node.entries() == {ONE}
    node.images.failures.clear()
    node.now += 3600
    assert node.settle()
    assert "fetch" not in node.images.steps()


def test_without_kubernetes_there_are_no_uids_and_nothing_is_asked_again(node: Node) -> None:
    node.want("llama", digest=ONE)
    assert node.settle()
    node.images.calls.clear()
    without_uids(node)
    node.restart()
    assert node.settle()
    assert node.images.steps() == []


def test_it_is_not_ready_while_it_waits_for_a_worker(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    served(node, serve_revoked=True)
    declare(node, "uid-of-another-tenant")
    monkeypatch.setattr(PullScheduler, "next_pull", lambda *_: None)
    node.agent.reconcile()
    assert node.pointer().state is CacheState.PENDING


def test_a_pointer_that_a_full_disk_refuses_is_not_ready(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    served(node, serve_revoked=True)
    declare(node, "uid-of-another-tenant")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(pointers, "save", full)
        node.settle()
        assert pointers.load(node.layout, REF) is None
    node.now += 3600
    assert node.settle()


class Killed(BaseException):
    """The end of the process, as far as a thread can see it."""


def end_pulls() -> None:
    """Wait for the threads of pulls: one that goes on after its agent was killed would write as the next agent."""
    for thread in threading.enumerate():
        if thread.name.startswith("pull "):
            thread.join(scaled(30))
            assert not thread.is_alive()


def killed_after(node: Node, monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    """Work until so many pointers and checks are written, and not a byte further."""
    left, ended = [writes], Event()

    def counted(write: Callable[..., None]) -> Callable[..., None]:
        def counting(*arguments: object) -> None:
            if not left[0]:
                ended.set()
                raise Killed
            left[0] -= 1
            write(*arguments)

        return counting

    with monkeypatch.context() as kill:
        kill.setattr(pointers, "save", counted(pointers.save))
        kill.setattr(checks, "save", counted(checks.save))
        kill.setattr("threading.excepthook", lambda _: None)
        for _ in range(100):
            with suppress(Killed):
                node.agent.reconcile()
            if ended.wait(0.02):
                end_pulls()
                return
    raise AssertionError(f"nothing was written after {writes} writes")


@pytest.mark.parametrize("writes", range(5))
def test_killed_after_any_write_the_next_agent_asks_unless_access_was_proven(
    node: Node, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    served(node, serve_revoked=True)
    declare(node, "uid-of-another-tenant")
    killed_after(node, monkeypatch, writes)
    check = checks.load(node.layout, REF)
    proven = check is not None and check.uid == "uid-of-another-tenant"
    assert proven == (writes >= 3)
    assert (node.pointer().state is CacheState.READY) == (writes == 0)
    node.images.failures["verify"] = CLOSED
    node.restart()
    assert node.settle() == proven
    assert node.pointer().uid == "uid-of-another-tenant"


@pytest.fixture
def in_kubernetes(node: Node, api: FakeApi) -> Iterator[Callable[[], KubernetesSource]]:
    started: list[KubernetesSource] = []

    def begin() -> KubernetesSource:
        source = KubernetesSource(api, "node-1", Event())
        source.start()
        assert source.wait(scaled(10))
        started.append(source)
        node.source = source  # type: ignore[assignment]
        node.restart()
        return source

    yield begin
    for source in started:
        source.stop()


def put(api: FakeApi) -> None:
    condition = {
        "type": "Verified",
        "status": "True",
        "reason": "CosignSuccess",
        "message": "",
        "lastTransitionTime": "",
    }
    condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    kind = {"apiVersion": "gkm.io/v1alpha1", "kind": "GKMCache", "metadata": {"name": "llama", "namespace": "ml-apps"}}
    api.create(WHOLE, kind | {"spec": {"image": IMAGE}})
    status = {"image": IMAGE, "resolvedDigest": ONE, "conditions": [condition]}
    api.apply(WHOLE, kind | {"status": status}, field_manager="controller", subresource="status")


def test_a_namespace_that_is_made_again_while_the_agent_is_away(
    node: Node, api: FakeApi, in_kubernetes: Callable[[], KubernetesSource]
) -> None:
    put(api)
    source = in_kubernetes()
    assert node.settle()
    source.stop()
    api.delete(WHOLE, "llama", "ml-apps")
    put(api)
    node.images.failures["verify"] = CLOSED
    in_kubernetes()
    assert not node.settle()
    assert (node.pointer().state, node.pointer().reason) == (CacheState.FAILED, "Unauthorized")
