"""A registry that answers 429 for an hour: the agent asks it seldom, says so, and serves everything else.

Simulated: the agent's clock. Real: both registries, the client, verification, the pull and the store.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise
from pathlib import Path

import pytest
from gkm.api.config import Config, Policy, Registries, RegistryHost, Verification
from gkm.api.errors import Reason
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState
from gkm.images.reference import Reference
from gkm.images.registries import push, transport
from gkm.images.registries.registry import Registry as Client
from gkm.images.registries.transport import MAX_ATTEMPTS, MAX_RETRY_AFTER_SECONDS
from gkm_agent.caches.decisions import SPREAD, TRANSIENT_BACKOFF
from gkm_agent.caches.model import WantedCache
from gkm_agent.pulls.images import NodeImages
from gkm_agent.reconcile.reconciler import RECONCILE_SECONDS
from gkm_csi.status_errors import Code, StatusError
from gkm_csi.volumes.publish_errors import usable_pointer
from support.agent.node import Node
from support.images.archives import cache_image
from support.registry import faults
from support.registry.push import Target
from support.registry.server import Registry
from support.sigstore.key_signatures import SigningKey, sign_bundle

HOUR = 3600.0
BUSY, OTHER, SERVED = (CacheRef("ml-apps", name) for name in ("busy", "other", "served"))
TEN_YEARS_AHEAD = format_datetime(datetime.now(UTC) + timedelta(days=3650))
LONGEST = MAX_RETRY_AFTER_SECONDS * (1 + SPREAD)
LEAST = TRANSIENT_BACKOFF.first * (1 - SPREAD)
REQUESTS = 2
"""Of one attempt, at most: one for each form of signatures. Without a requested pause, each is repeated."""


def most_attempts() -> int:
    """Return how many attempts fit into an hour if each pause is the shortest possible."""
    attempts, passed = 0, 0.0
    while passed <= HOUR:
        attempts += 1
        passed += TRANSIENT_BACKOFF.longest_pause(attempts) * (1 - SPREAD)
    return attempts


@pytest.fixture
def registries() -> Iterator[tuple[Registry, Registry]]:
    with Registry.start() as busy, Registry.start() as other:
        yield busy, other


@pytest.fixture
def node(tmp_path: Path, registries: tuple[Registry, Registry], monkeypatch: pytest.MonkeyPatch) -> Node:
    """Return a node that serves one cache of the registry that becomes busy, and wants another one of each."""
    key = SigningKey()
    hosts = {registry.host: RegistryHost(plain_http=True) for registry in registries}
    digests = {}
    for registry, names in zip(registries, (("busy", "served"), ("other",)), strict=True):
        for name in names:
            ref = Reference.parse(f"{registry.host}/team/{name}:1")
            digests[name] = push.image(Client(Registries(hosts=hosts)), ref, cache_image(name))
            sign_bundle(Target(registry.host, f"team/{name}"), digests[name], key)
    config = Config(Verification(policies=[Policy(keys=[key.public_pem.decode()])]), Registries(hosts=hosts))
    layout = Layout(tmp_path / "state", tmp_path / "run")
    node = Node(layout, NodeImages.of(config, layout))  # type: ignore[arg-type]  # the real implementation
    monkeypatch.setattr(transport, "retry_delay", lambda *_: 0.0)  # seconds of a worker, not of the agent's clock
    wanted = [
        WantedCache(CacheRef("ml-apps", name), f"{registry.host}/team/{name}:1", digests[name])
        for registry, names in zip(registries, (("served", "busy"), ("other",)), strict=True)
        for name in names
    ]
    node.source.wanted = wanted[:1]
    assert node.settle()
    node.source.wanted = wanted
    return node


@pytest.mark.parametrize(
    "retry_after",
    ["3600", None, "soon", TEN_YEARS_AHEAD, "-5"],
    ids=["an hour", "none", "garbage", "ten years", "negative"],
)
def test_an_hour_of_429_costs_few_requests_and_delays_nothing_else(
    node: Node, registries: tuple[Registry, Registry], retry_after: str | None
) -> None:
    busy, _ = registries
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    obeys = retry_after in ("3600", TEN_YEARS_AHEAD)
    busy.requests.clear()
    busy.misbehave(faults.status("", 429, headers=headers))
    end, attempts = node.now + HOUR, list[float]()
    while node.now < end:
        before = len(busy.requests)
        node.settle()
        if sent := len(busy.requests) - before:
            attempts.append(node.now)
            assert sent <= REQUESTS * (1 if obeys else MAX_ATTEMPTS)
        assert_busy(node)
        # The pass after this one comes when the agent itself would wake up.
        wait = node.agent._seconds_until_next()
        assert wait > 0
        node.now += wait
    pauses = [later - earlier for earlier, later in pairwise(attempts)]
    assert min(pauses) >= (MAX_RETRY_AFTER_SECONDS if obeys else LEAST)
    assert len(attempts) <= (HOUR // MAX_RETRY_AFTER_SECONDS if obeys else most_attempts())

    busy.behave()
    recovered_by = node.now + LONGEST
    while node.status(BUSY).state != CacheState.READY and node.now <= recovered_by:
        node.now += RECONCILE_SECONDS
        node.settle()
    assert node.status(BUSY).state == CacheState.READY
    assert node.status(BUSY).next_try is None
    assert usable_pointer(node.pointer(BUSY), BUSY, "node-1", node.pointer(BUSY).driver_version)


def assert_busy(node: Node) -> None:
    """Check that the status and a mount name the cause and the next attempt, and that the other caches are served."""
    status, pointer = node.status(BUSY), node.pointer(BUSY)
    assert (status.state, status.reason) == (CacheState.FAILED, Reason.REGISTRY_UNAVAILABLE)
    assert "answers 429" in status.message
    assert status.next_try is not None
    next_try = datetime.fromisoformat(status.next_try).timestamp()
    assert node.now < next_try + 1 <= node.now + LONGEST + 1
    with pytest.raises(StatusError, match=r"busy is Failed on node-1: RegistryUnavailable: .*answers 429") as caught:
        usable_pointer(pointer, BUSY, "node-1", pointer.driver_version)
    assert caught.value.code is Code.FAILED_PRECONDITION
    assert {node.status(ref).state for ref in (OTHER, SERVED)} == {CacheState.READY}
