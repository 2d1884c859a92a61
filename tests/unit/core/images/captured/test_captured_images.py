"""The statement about a captured image proves content and hardware; deletion takes all of it from a registry."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from gkm.api.config import Policy, Verification
from gkm.api.errors import GKMError, Reason
from gkm.images.captured import statement
from gkm.images.captured.content import PREDICATE_TYPE, Hardware
from gkm.images.captured.deletion import delete_image
from gkm.images.captured.statement import CaptureClaim
from gkm.images.manifest import OCI_INDEX, OCI_MANIFEST
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry
from gkm.images.signatures.discovery import legacy_tag
from gkm.images.signatures.signature_formats import SIGNATURE_ANNOTATION, SIMPLE_SIGNING, SIMPLE_SIGNING_TYPE
from gkm.images.signatures.verify import Verifier
from gkm.images.signing.attest import attest
from gkm.images.signing.forms import ImageSigner
from gkm.images.signing.keys import PrivateKey
from gkm_agent.capturing.progress import load_files
from msgspec import to_builtins
from support.agent.capturing import CaptureNode, write_key
from support.registry.faults import Answer
from support.registry.server import Registry as RegistryServer
from support.registry.wire import Request

MADE = datetime(2026, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 1, 10, tzinfo=UTC)
NO_DIGEST = frozenset[str]().__contains__


@pytest.fixture(params=[True, False], ids=["referrers API", "fallback tags"])
def server(request: pytest.FixtureRequest) -> Iterator[RegistryServer]:
    with RegistryServer.start(referrers=request.param) as running:
        yield running


class CapturedInRegistry:
    """An image that the agent made of a capture."""

    def __init__(self, root: Path, server: RegistryServer) -> None:
        self.server = server
        self.node = CaptureNode(root, server.host)
        self.key = write_key(self.node.key_file)
        self.node.capture()
        self.report = self.node.announced("csi-1")
        self.ref = Reference.parse(self.report.image)
        self.registry = Registry(self.node.config.registries)

    @property
    def hardware_key(self) -> str:
        report = self.report
        return Hardware(report.backend, report.arch, 32, report.driver, report.runtime, report.version).key

    @property
    def claim(self) -> CaptureClaim:
        return CaptureClaim("ml-apps", self.hardware_key, self.report.content_digest or "")

    def check(
        self, key: PrivateKey | None = None, *, now: datetime = NOW, wanted: CaptureClaim | None = None
    ) -> datetime:
        policy = Policy([(key or self.key).public.pem.decode()], tlog="ignored")
        trusts = Verifier(Verification(policies=[policy])).trusts(self.ref, "ml-apps")
        return statement.check(self.registry, self.ref, trusts, wanted or self.claim, now)

    def state(self, time: str, key: PrivateKey | None = None, /, **changes: object) -> None:
        """Attach another statement, as a node does that captured the same at another time."""
        files = load_files(self.node.layout.captured / "csi-1")
        predicate = {
            "namespace": "ml-apps",
            "time": time,
            "contentDigest": self.claim.content_digest,
            "hardware": self.hardware_key,
            "files": [to_builtins(each) for each in files],
        }
        stated = {name: value for name, value in (predicate | changes).items() if value is not None}
        attest(self.registry, self.ref, PREDICATE_TYPE, stated, ImageSigner.by_key(key or self.key))

    def stored(self) -> tuple[int, int]:
        """Return the numbers of the manifests and tags in the repository.

        A fallback tag names another index after each change; those before it stay, without a tag.
        """
        repository = self.server.store.repository(self.ref.repository)
        found = [each for each in repository.manifests.values() if each.media_type != OCI_INDEX]
        return len(found), len(repository.tags)


@pytest.fixture
def captured(tmp_path: Path, server: RegistryServer) -> CapturedInRegistry:
    return CapturedInRegistry(tmp_path, server)


def test_the_statement_of_the_agent_proves_content_hardware_namespace_and_time(captured: CapturedInRegistry) -> None:
    assert captured.check() == MADE


def test_the_newest_signed_time_counts_and_none_that_is_to_come(captured: CapturedInRegistry) -> None:
    captured.state("2026-01-03T00:00:00Z")
    captured.state("2026-01-02T00:00:00Z")
    captured.state("9999-12-31T23:59:59Z")
    captured.state("2026-01-05T00:00:00Z", PrivateKey.new())
    assert captured.check() == MADE + timedelta(days=2)
    captured.check(now=MADE - timedelta(seconds=60))
    with pytest.raises(GKMError) as caught:
        captured.check(now=MADE - timedelta(seconds=61))
    assert caught.value.reason is Reason.SIGNATURE_MISSING


@pytest.mark.parametrize(
    "changes",
    [{"namespace": None}, {"namespace": "others"}, {"time": None}, {"time": "soon"}, {"time": "2026-01-01T00:00:00"}],
    ids=["no namespace", "another namespace", "no time", "none", "without an offset"],
)
def test_a_statement_without_its_namespace_or_a_time_counts_for_nothing(
    captured: CapturedInRegistry, changes: dict[str, object]
) -> None:
    signer = PrivateKey.new()
    captured.state("2026-01-01T00:00:00Z", signer, **changes)
    with pytest.raises(GKMError) as caught:
        captured.check(signer)
    assert caught.value.reason is Reason.SIGNATURE_MISSING
    captured.state("2026-01-01T00:00:00Z", signer)
    captured.check(signer)


def test_each_time_counts_with_the_number_of_signers_that_a_policy_requires(captured: CapturedInRegistry) -> None:
    second = PrivateKey.new()
    keys = [each.public.pem.decode() for each in (captured.key, second)]
    policy = Policy(keys, tlog="ignored", require=2)
    trusts = Verifier(Verification(policies=[policy])).trusts(captured.ref, "ml-apps")
    captured.state("2026-01-03T00:00:00Z", second)
    assert statement.check(captured.registry, captured.ref, trusts, captured.claim, NOW) == MADE


@pytest.mark.parametrize(
    "wrong",
    [
        {"namespace": "others"},
        {"hardware_key": "cuda-sm_100-r570-triton"},
        {"content_digest": f"sha256:{'0' * 64}"},
    ],
    ids=["namespace", "hardware", "content"],
)
def test_another_claim_is_not_proven(captured: CapturedInRegistry, wrong: dict[str, str]) -> None:
    with pytest.raises(GKMError) as caught:
        captured.check(wanted=captured.claim._replace(**wrong))
    assert caught.value.reason is Reason.SIGNATURE_MISSING


def test_the_statement_of_a_stranger_proves_nothing(captured: CapturedInRegistry) -> None:
    with pytest.raises(GKMError) as caught:
        captured.check(PrivateKey.new())
    assert caught.value.reason is Reason.SIGNATURE_MISSING


def test_without_a_policy_nothing_is_proven(captured: CapturedInRegistry) -> None:
    with pytest.raises(GKMError) as caught:
        statement.check(captured.registry, captured.ref, [], captured.claim, NOW)
    assert caught.value.reason is Reason.SIGNATURE_MISSING


def test_files_with_another_digest_than_stated_are_refused() -> None:
    stated = b'"namespace": "a", "time": "2026-01-01T00:00:00Z", "hardware": "cuda", "contentDigest": "sha256:0"'
    payload = b'{"predicate": {%s, "files": []}}' % stated
    with pytest.raises(GKMError) as caught:
        statement.states_in(payload)
    assert caught.value.reason is Reason.CONTENT_MISMATCH


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
