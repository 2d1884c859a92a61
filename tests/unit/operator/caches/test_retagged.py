"""An image that is retagged between verification and pull is never mounted under the old verdict: A, or nothing."""

from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from gkm.api.config import Config, Policy, Registries, RegistryHost, Store, Verification
from gkm.api.errors import Reason
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pacing import Backoff
from gkm.hoststate.pointers import CacheState
from gkm.images.reference import Reference
from gkm.images.registries import push
from gkm.images.registries.registry import Registry as Client
from gkm.kube.resources import GKMCACHES
from gkm_agent.caches.model import WantedCache
from gkm_agent.kubernetes.source import wanted_of
from gkm_agent.pulls.images import NodeImages
from gkm_operator.caches.controller import CachesController
from gkm_operator.caches.throttling import StatusInterval
from gkm_operator.images import CheckedImages
from support.agent.node import Node
from support.host.waiting import until
from support.images.archives import cache_image
from support.kube.fake_api import FakeApi
from support.operator.deployment import cache
from support.registry import faults
from support.registry.push import Target
from support.registry.server import Registry
from support.sigstore.key_signatures import SigningKey, sign_bundle

REPOSITORY = "team/vector-add"
REF = CacheRef("ml-apps", "llama")


class Place:
    """A registry with a signed image A, the controller over an API in memory, and a node."""

    def __init__(self, registry: Registry, root: Path) -> None:
        self.registry = registry
        self.key = SigningKey()
        hosts = Registries(hosts={registry.host: RegistryHost(plain_http=True)})
        verification = Verification(policies=[Policy(keys=[self.key.public_pem.decode()])])
        self.config = Config(registries=hosts, verification=verification, store=Store(min_free_percent=0))
        self.client = Client(hosts)
        self.image = f"{registry.host}/{REPOSITORY}:1"
        self.a = self.push("A")
        sign_bundle(Target(registry.host, REPOSITORY), self.a, self.key)
        self.api = FakeApi()
        images: Any = NodeImages.of(self.config, Layout(root / "state", root / "run"))
        self.node = Node(Layout(root / "state", root / "run"), images)

    def push(self, title: str) -> str:
        """Push an image, unsigned, so that the tag names it; return its digest."""
        return push.image(self.client, Reference.parse(self.image), cache_image(title))

    def moved(self) -> str:
        """Move the tag to B, which is unsigned; return its digest."""
        b = self.push("B")
        assert b != self.a
        assert self.client.resolve(Reference.parse(self.image)) == b
        return b

    def verified(self, images: CheckedImages | None = None) -> None:
        """Have the controller resolve and verify what the tag names."""
        controller = CachesController(
            self.api,
            images or CheckedImages.of(self.config),
            status_interval=StatusInterval(0.0, 0.0),
            backoff=Backoff(0.001, 0.002),
        )
        self.api.create(GKMCACHES, cache(REF.name, self.image, REF.namespace))
        try:
            assert controller.watch(Event())
            controller.work()
            until(lambda: self.api.get(GKMCACHES, REF.name, REF.namespace).status.condition("Verified"), "it is judged")
        finally:
            controller.close()

    def wanted(self) -> WantedCache:
        wanted = wanted_of(self.api.get(GKMCACHES, REF.name, REF.namespace), "node-1")
        assert wanted is not None
        return wanted

    def pull(self) -> bool:
        """Let the node reconcile; return whether the cache is Ready."""
        self.node.source.wanted = [self.wanted()]
        return self.node.settle()


@pytest.fixture
def place(registry: Registry, tmp_path: Path) -> Place:
    return Place(registry, tmp_path)


def test_the_verified_digest_is_pulled_although_the_tag_moved(place: Place) -> None:
    place.verified()
    place.moved()
    assert place.wanted().digest == place.a
    assert place.pull()
    assert (place.node.pointer().digest, place.node.entries()) == (place.a, {place.a})


def test_a_tag_that_moves_during_verification_counts_with_its_resolved_digest(place: Place) -> None:
    class Moving(CheckedImages):
        def resolve(self, image: str) -> str:
            digest = super().resolve(image)
            place.moved()
            return digest

    place.verified(Moving.of(place.config))
    assert place.wanted().digest == place.a
    assert place.pull()
    assert place.node.entries() == {place.a}


def other_bytes(path: str, data: bytes) -> faults.Fault:
    """Return a registry fault: other bytes, served under the requested name."""
    return faults.Fault(path, lambda answer: answer._replace(body=data, headers=_resized(answer.headers, data)))


def _resized(headers: Any, data: bytes) -> dict[str, str]:  # noqa: ANN401 -- a mapping of headers
    return {**headers, "Content-Length": str(len(data))}


@pytest.mark.parametrize(
    "fault",
    [
        lambda a, b: other_bytes(f"manifests/{a}", b),
        lambda a, _: faults.status(f"manifests/{a}", 404),
    ],
    ids=["B under the digest of A", "A is gone"],
)
def test_nothing_is_pulled_when_the_verified_image_is_unavailable(
    place: Place, fault: Callable[[str, bytes], faults.Fault]
) -> None:
    place.verified()
    b = place.moved()
    manifest = place.client.manifest(Reference.parse(place.image).pinned(b)).raw
    place.registry.misbehave(fault(place.a, manifest))
    assert not place.pull()
    assert place.node.pointer().state is CacheState.FAILED
    assert place.node.pointer().reason in {Reason.DIGEST_MISMATCH, Reason.NOT_FOUND}
    assert place.node.entries() == set()
    assert b not in {place.node.pointer().digest, place.wanted().digest}


def test_other_bytes_from_a_registry_are_rejected(place: Place) -> None:
    b = place.moved()
    manifest = place.client.manifest(Reference.parse(place.image).pinned(b)).raw
    Target(place.registry.host, REPOSITORY).manifest(
        place.client.manifest(Reference.parse(place.image).pinned(place.a)).raw, "1"
    )
    place.registry.misbehave(other_bytes(f"manifests/({place.a}|1)", manifest))
    place.verified()
    assert place.wanted().digest is None
    assert not place.pull()
    assert place.node.entries() == set()
