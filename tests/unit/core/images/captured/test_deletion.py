"""Deletion takes a captured image with all that belongs to it from a registry, and nothing else."""

import json
from typing import Any

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.images.captured.deletion import delete_image
from gkm.images.manifest import OCI_INDEX, OCI_MANIFEST
from gkm.images.signatures.discovery import legacy_tag
from gkm.images.signatures.signature_formats import SIGNATURE_ANNOTATION, SIMPLE_SIGNING, SIMPLE_SIGNING_TYPE
from support.agent.captured_registry import CapturedInRegistry, captured, captured_once, server
from support.registry.faults import Answer
from support.registry.wire import Request

__all__ = ["captured", "captured_once", "server"]

NO_DIGEST = frozenset[str]().__contains__


def test_an_image_goes_with_its_signatures_and_its_statement(captured: CapturedInRegistry) -> None:
    manifests, tags = captured.stored()
    assert manifests >= 4
    assert tags >= 2
    delete_image(captured.registry, captured.ref, NO_DIGEST)
    assert captured.stored() == (0, 0)
    delete_image(captured.registry, captured.ref, NO_DIGEST)


def test_a_deletion_that_was_cut_off_after_the_image_is_completed(captured: CapturedInRegistry) -> None:
    repository = captured.server.store.repository(captured.ref.repository)
    del repository.manifests[captured.ref.target]
    repository.tags = {tag: digest for tag, digest in repository.tags.items() if digest != captured.ref.target}
    delete_image(captured.registry, captured.ref, NO_DIGEST)
    assert captured.stored() == (0, 0)


class AttachedByPusher:
    """What a client with push access stores in the repository of a captured image, beside it."""

    def __init__(self, captured: CapturedInRegistry) -> None:
        self.store = captured.server.store
        self.repository = captured.ref.repository
        self.tags = self.store.repository(self.repository).tags
        self.ref = captured.ref

    def image(self, *layers: tuple[bytes, str], subject: str = "", tag: str | None = None) -> str:
        config = self.descriptor(b"{}", "application/vnd.oci.image.config.v1+json")
        found = [self.descriptor(*layer) for layer in layers]
        attached = {"subject": {"mediaType": OCI_MANIFEST, "digest": subject, "size": 2}} if subject else {}
        manifest = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": found, **attached}
        return self.manifest(manifest, OCI_MANIFEST, tag)

    def index(self, *digests: str, tag: str) -> str:
        listed = [{"mediaType": OCI_MANIFEST, "digest": each, "size": 2} for each in digests]
        return self.manifest({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": listed}, OCI_INDEX, tag)

    def manifest(self, value: dict[str, Any], media_type: str, tag: str | None) -> str:
        return self.store.put_manifest(self.repository, value, tag=tag, media_type=media_type)

    def descriptor(self, data: bytes, media_type: str) -> dict[str, Any]:
        annotations = {SIGNATURE_ANNOTATION: "MA=="}
        digest = self.store.put_blob(self.repository, data)
        return {"mediaType": media_type, "digest": digest, "size": len(data), "annotations": annotations}

    def remains(self, digest: str) -> bool:
        return digest in self.store.repository(self.repository).manifests


LAYER = (b"kernels", "application/vnd.oci.image.layer.v1.tar+gzip")


def simple_signing(digest: str) -> tuple[bytes, str]:
    critical = {"type": SIMPLE_SIGNING_TYPE, "image": {"docker-manifest-digest": digest}}
    return json.dumps({"critical": critical}).encode(), SIMPLE_SIGNING


def test_an_image_that_a_referrers_index_names_stays(captured: CapturedInRegistry) -> None:
    pusher = AttachedByPusher(captured)
    other = pusher.image(LAYER)
    attached = pusher.image(LAYER, subject=other)
    index = pusher.index(other, attached, tag=captured.ref.tag_of_digest().target)
    delete_image(captured.registry, captured.ref, NO_DIGEST)
    assert not pusher.remains(captured.ref.target)
    assert all(pusher.remains(each) for each in (other, attached, index))


@pytest.mark.parametrize("suffix", ["", ".sig"])
def test_an_image_that_has_the_tag_of_signatures_stays(captured: CapturedInRegistry, suffix: str) -> None:
    pusher = AttachedByPusher(captured)
    other = pusher.image(LAYER, tag=captured.ref.tag_of_digest(suffix).target)
    delete_image(captured.registry, captured.ref, NO_DIGEST)
    assert not pusher.remains(captured.ref.target)
    assert pusher.remains(other)


def test_an_index_of_images_that_has_the_tag_of_signatures_stays(captured: CapturedInRegistry) -> None:
    pusher = AttachedByPusher(captured)
    index = pusher.index(pusher.image(LAYER), tag=legacy_tag(captured.ref).target)
    delete_image(captured.registry, captured.ref, NO_DIGEST)
    assert pusher.remains(index)


def test_the_legacy_signatures_of_another_image_stay(captured: CapturedInRegistry) -> None:
    pusher = AttachedByPusher(captured)
    own, foreign = simple_signing(captured.ref.target), simple_signing(pusher.image(LAYER))
    signatures = pusher.image(own, foreign, tag=legacy_tag(captured.ref).target)
    delete_image(captured.registry, captured.ref, NO_DIGEST)
    assert pusher.remains(signatures)


def test_what_is_attached_and_named_by_a_cache_stays(captured: CapturedInRegistry) -> None:
    pusher = AttachedByPusher(captured)
    named = {pusher.image(LAYER, subject=captured.ref.target), pusher.tags[legacy_tag(captured.ref).target]}
    pusher.index(*named, tag=captured.ref.tag_of_digest().target)
    delete_image(captured.registry, captured.ref, named.__contains__)
    assert not pusher.remains(captured.ref.target)
    assert all(pusher.remains(each) for each in named)


@pytest.mark.parametrize("tag", ["", ".sig"])
def test_tags_that_cannot_be_read_do_not_prevent_the_deletion(captured: CapturedInRegistry, tag: str) -> None:
    pusher = AttachedByPusher(captured)
    target = captured.ref.tag_of_digest(tag).target
    broken = pusher.manifest({"manifests": 1, "layers": "x" * (2 << 20)}, OCI_INDEX, target)
    delete_image(captured.registry, captured.ref, NO_DIGEST)
    assert not pusher.remains(captured.ref.target)
    assert pusher.remains(broken)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (405, Reason.NOT_ALLOWED),
        (400, Reason.NOT_ALLOWED),
        (412, Reason.NOT_ALLOWED),
        (404, Reason.NOT_ALLOWED),
        (403, Reason.UNAUTHORIZED),
        (503, Reason.REGISTRY_UNAVAILABLE),
    ],
)
def test_a_registry_that_refuses_keeps_the_image_with_its_signatures(
    captured: CapturedInRegistry, monkeypatch: pytest.MonkeyPatch, answer: int, reason: Reason
) -> None:
    before, routes = captured.stored(), captured.server.routes
    proper = routes.answer

    def refuse(request: Request) -> Answer:
        return Answer(answer, {}, b"") if request.method == "DELETE" else proper(request)

    monkeypatch.setattr(routes, "answer", refuse)
    with pytest.raises(GKMError) as caught:
        delete_image(captured.registry.within(20.0), captured.ref, NO_DIGEST)
    assert caught.value.reason is reason
    assert captured.stored() == before
