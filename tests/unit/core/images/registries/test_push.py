"""A push to a registry that is busy, breaks off or redirects uploads; and the progress reports of a push."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from gkm.api.config import Registries, RegistryHost
from gkm.api.errors import GKMError, Reason
from gkm.images.local_image import LocalBlob, LocalImage
from gkm.images.reference import Reference
from gkm.images.registries import push
from gkm.images.registries.registry import Registry as Client
from gkm.images.registries.transport import TransportLimits
from support.images.cache_registry import LIMITS
from support.images.private_registry import SECRET, as_user, client, everything_by_proxy, fill, private
from support.images.unreached import unreached
from support.registry import faults
from support.registry.auth import Auth
from support.registry.relay import Relay
from support.registry.server import Registry
from support.registry.store import OCI_MANIFEST, digest_of

UPLOADS = faults.ANY_METHOD - {"GET", "HEAD"}
LAYER = random.Random(7).randbytes(3 << 20)
OTHER = b"another layer"


@pytest.fixture
def image(tmp_path: Path) -> LocalImage:
    """Return an image with one layer on disk and one in memory."""
    path = tmp_path / "layer"
    path.write_bytes(b"before" + LAYER)
    of_file = LocalBlob(LocalBlob.from_bytes(LAYER, "application/x").descriptor, path, offset=len(b"before"))
    blobs = (of_file, LocalBlob.from_bytes(OTHER, "application/x"), LocalBlob.from_bytes(b"{}", "application/x"))
    described = [
        {"mediaType": "application/x", "digest": b.descriptor.digest, "size": b.descriptor.size} for b in blobs
    ]
    manifest = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": described[2], "layers": described[:2]}
    return LocalImage(json.dumps(manifest).encode(), OCI_MANIFEST, blobs, {})


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry.start() as running:
        yield running


def ref_at(host: str) -> Reference:
    return Reference.parse(f"{host}/team/x:1")


def client_at(*hosts: str, limits: TransportLimits = LIMITS) -> Client:
    return Client(Registries(hosts={host: RegistryHost(plain_http=True) for host in hosts}), limits=limits)


def stored(registry: Registry, image: LocalImage) -> bool:
    held = registry.store.repository("team/x")
    return image.digest in held.manifests and all(
        held.blobs.get(blob.descriptor.digest) == b"".join(blob.pieces()) for blob in image.blobs
    )


def total(image: LocalImage) -> int:
    return sum(blob.descriptor.size for blob in image.blobs)


def is_a_way_to_the_end(reports: list[tuple[int, int]], whole: int) -> bool:
    """Return whether the reports stay between 0 and the total and end at the total."""
    return reports[-1] == (whole, whole) and all(0 <= done <= of == whole for done, of in reports)


def test_an_image_is_stored_and_how_far_it_is_only_grows(registry: Registry, image: LocalImage) -> None:
    reports: list[tuple[int, int]] = []
    digest = push.image(client_at(registry.host), ref_at(registry.host), image, lambda *now: reports.append(now))
    assert digest == image.digest
    assert stored(registry, image)
    assert is_a_way_to_the_end(reports, total(image))
    assert reports == sorted(reports)


def test_a_stored_blob_is_not_sent_again(registry: Registry, image: LocalImage) -> None:
    push.image(client_at(registry.host), ref_at(registry.host), image)
    registry.requests.clear()
    reports: list[tuple[int, int]] = []
    push.image(client_at(registry.host), ref_at(registry.host), image, lambda *now: reports.append(now))
    assert not registry.seen("POST", "uploads")
    assert is_a_way_to_the_end(reports, total(image))


@pytest.mark.parametrize("status", [429, 500, 503])
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_registry_that_is_busy_is_sent_the_whole_body_again(
    registry: Registry, image: LocalImage, method: str, status: int
) -> None:
    busy = faults.status("uploads", status, times=2, headers={"Retry-After": "0"})
    registry.misbehave(faults.Fault(busy.path, busy.change, frozenset({method}), times=2))
    reports: list[tuple[int, int]] = []
    push.image(client_at(registry.host), ref_at(registry.host), image, lambda *now: reports.append(now))
    assert stored(registry, image)
    assert is_a_way_to_the_end(reports, total(image))
    assert (reports != sorted(reports)) is (method == "PUT")  # it decreases when sent bytes were lost


def test_a_push_to_a_registry_that_stays_busy_fails_with_its_answer(registry: Registry, image: LocalImage) -> None:
    busy = faults.status("uploads", 429)
    registry.misbehave(faults.Fault(busy.path, busy.change, frozenset({"PUT"})))
    with pytest.raises(GKMError, match="the registry answers 429") as caught:
        push.image(client_at(registry.host), ref_at(registry.host), image)
    assert caught.value.reason is Reason.REGISTRY_UNAVAILABLE
    assert caught.value.hint
    assert len(registry.seen("PUT", "uploads")) == 3


@pytest.mark.parametrize("times", [1, 2])
def test_an_upload_that_breaks_off_near_its_end_is_made_again(
    registry: Registry, image: LocalImage, times: int
) -> None:
    reports: list[tuple[int, int]] = []
    with Relay.start(registry.host) as relay:
        relay.cuts = [len(LAYER) * 9 // 10] * times
        push.image(client_at(relay.host), ref_at(relay.host), image, lambda *now: reports.append(now))
    assert stored(registry, image)
    assert is_a_way_to_the_end(reports, total(image))
    # Each attempt opens a new session, because registries differ on continuing a broken one.
    sessions = [request.path.partition("?")[0] for request in registry.seen("PUT", "uploads")]
    assert len(sessions) == len(set(sessions))


def test_an_upload_that_always_breaks_off_ends_with_a_reason(registry: Registry, image: LocalImage) -> None:
    with Relay.start(registry.host) as relay:
        relay.cuts = [len(LAYER) * 9 // 10] * 50
        with unreached("the connection broke"):
            push.image(client_at(relay.host), ref_at(relay.host), image)
    assert not registry.store.repository("team/x").tags


def test_a_registry_may_pause_while_it_takes_a_blob(registry: Registry) -> None:
    limits = TransportLimits(connect=0.2, stall=10.0, request=30.0)
    blob = LocalBlob.from_bytes(bytes(24 << 20), "")  # more than the kernel takes in the registry's place
    # A separate connection for the upload, because a used one has other timeouts.
    closed = faults.with_headers({"Connection": "close"})
    registry.misbehave(faults.Fault("uploads/$", closed, frozenset({"POST"})))
    with Relay.start(registry.host) as relay:
        relay.pause = 1.0
        push.blob(client_at(relay.host, limits=limits), ref_at(relay.host), blob)
    assert blob.descriptor.digest in registry.store.repository("team/x").blobs
    assert len(registry.seen("PUT", "uploads")) == 1


def test_a_file_that_shrank_is_an_error_of_this_machine(registry: Registry, image: LocalImage) -> None:
    path = image.blobs[0].source
    assert isinstance(path, Path)
    path.write_bytes(b"short")
    with pytest.raises(GKMError, match=f"{path} ends") as caught:
        push.image(client_at(registry.host), ref_at(registry.host), image)
    assert caught.value.reason is Reason.NODE_ERROR
    assert len(registry.seen("POST", "uploads")) == 1
    assert not registry.store.repository("team/x").tags


def session_at(location: str) -> faults.Fault:
    return faults.Fault("uploads/$", lambda _: faults.Answer(202, {"Location": location}, b""), frozenset({"POST"}))


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("http://169.254.169.254/latest", Reason.NOT_ALLOWED),
        ("http://[::1]:9/x", Reason.NOT_ALLOWED),
        ("file:///etc/passwd", Reason.NOT_ALLOWED),
        ("http://[::1/", Reason.REGISTRY_UNAVAILABLE),
        ("http://user:password@registry.example/x", Reason.REGISTRY_UNAVAILABLE),
        ("", Reason.REGISTRY_UNAVAILABLE),
    ],
)
def test_an_upload_goes_to_no_address_that_a_redirect_may_not_name(
    registry: Registry, image: LocalImage, location: str, reason: Reason
) -> None:
    registry.misbehave(session_at(location))
    with pytest.raises(GKMError) as caught:
        push.image(client_at(registry.host), ref_at(registry.host), image)
    assert caught.value.reason is reason
    assert not registry.seen("PUT", "")


@pytest.mark.parametrize("bearer", [True, False])
def test_a_session_on_another_host_gets_no_credentials(
    image: LocalImage,
    bearer: bool,  # noqa: FBT001 -- a column
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with everything_by_proxy(monkeypatch) as (other, _), private(Auth("robot", SECRET, bearer=bearer)) as registry:
        # The other host has a name of its own, which a proxy leads to: no address of this machine can be one.
        monkeypatch.delenv("no_proxy", raising=False)
        registry.misbehave(session_at("http://blobs.example/v2/team/x/blobs/uploads/elsewhere"))
        with pytest.raises(GKMError) as caught:
            push.image(client(as_user(registry, "robot"), registry), ref_at(registry.host), image)
        assert caught.value.reason is Reason.NOT_FOUND  # that host knows no such session
        (asked,) = other.seen("PUT", "elsewhere")
        assert "authorization" not in asked.headers


@pytest.mark.parametrize("code", [307, 308])
def test_an_upload_that_is_redirected_stays_with_its_registry(registry: Registry, image: LocalImage, code: int) -> None:
    moved = faults.Fault(
        "uploads/[0-9a-f]+[?]digest",
        lambda _: faults.Answer(code, {"Location": f"http://{registry.host}/v2/team/x/blobs/uploads/nowhere"}, b""),
        UPLOADS,
        times=1,
    )
    registry.misbehave(moved)
    with pytest.raises(GKMError) as caught:
        push.image(client_at(registry.host), ref_at(registry.host), image)
    assert caught.value.reason is Reason.NOT_FOUND
    assert registry.seen("PUT", "uploads/nowhere")


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_an_upload_follows_no_redirect_to_another_host(registry: Registry, image: LocalImage, code: int) -> None:
    elsewhere = {"Location": "http://blobs.example/v2/x"}
    registry.misbehave(faults.Fault("uploads/", lambda _: faults.Answer(code, elsewhere, b""), UPLOADS))
    with pytest.raises(GKMError) as caught:
        push.image(client_at(registry.host), ref_at(registry.host), image)
    assert caught.value.reason in (Reason.NOT_ALLOWED, Reason.REGISTRY_UNAVAILABLE)
    assert ("blobs.example" in str(caught.value)) is (code in (307, 308))


def test_a_login_with_read_permission_cannot_push() -> None:
    with private() as registry:
        fill(registry, "team/x")
        with pytest.raises(GKMError) as caught:
            push.blob(
                client(as_user(registry, "robot", "wr0ng"), registry),
                ref_at(registry.host),
                LocalBlob.from_bytes(b"x", ""),
            )
        assert caught.value.reason is Reason.UNAUTHORIZED
        assert digest_of(b"x") not in registry.store.repository("team/x").blobs
