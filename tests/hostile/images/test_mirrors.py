"""Hostile and broken mirrors: their bytes are never used, and they cannot keep a node from the registry."""

from collections.abc import Callable, Iterator

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.hoststate.layout import Layout
from gkm.images import cache
from gkm.images.local_image import LocalImage
from gkm.images.pulling import pull
from gkm.images.pulling.blob_files import REGISTRY_PART, BlobFiles
from gkm.images.reference import Reference
from gkm.images.registries import push
from gkm.images.registries.transport import TransportLimits
from support.images.archives import blob_of
from support.images.cache_registry import Site, client_of
from support.images.mirrors import client_through
from support.registry import faults
from support.registry.faults import Fault
from support.registry.server import Registry

MAX = 1 << 30
LIMITS = TransportLimits(connect=10.0, stall=3.0, request=60.0)
OTHER = b'{"schemaVersion":2,"config":{"digest":"sha256:' + b"1" * 64 + b'","size":1,"mediaType":"x"},"layers":[]}'


@pytest.fixture
def mirror(site: Site, built: LocalImage) -> Iterator[Registry]:
    with Registry.start() as mirror:
        push.image(client_of(mirror), Reference.parse(f"{mirror.host}/{site.ref.repository}:1"), built)
        yield mirror


def other_repository(path: str, body: Callable[[bytes], bytes] = lambda body: b"x" * len(body)) -> Fault:
    """Answer with bytes of another repository, well-formed and of the announced length."""
    return faults.tampered(path, body)


SPOILED = [
    other_repository("manifests/", lambda _: OTHER),
    other_repository("blobs/"),
    faults.tampered("manifests/"),
    faults.tampered("blobs/"),
    faults.overlong("manifests/"),
    faults.overlong("blobs/"),
    faults.overlong("manifests/", b" " * (5 << 20)),
    faults.truncated("manifests/", 100),
    faults.truncated("blobs/", 100),
    faults.truncated("blobs/", 0),
    faults.without_length("blobs/", cut_after=1000),
    faults.reset("blobs/", 1000),
    faults.wrong_length("blobs/", 5),
    faults.tampered("blobs/", lambda _: b""),
    faults.content_encoded("manifests/"),
    faults.content_encoded("blobs/"),
    faults.redirected("manifests/", "http://169.254.169.254/latest/meta-data/"),
    faults.redirected("blobs/", "http://169.254.169.254/latest/meta-data/"),
    faults.status("", 401, headers={"WWW-Authenticate": 'Bearer realm="http://169.254.169.254/token"'}),
    faults.status("manifests/", 429, headers={"Retry-After": "100000000"}),
    faults.status("", 500),
    faults.stalled("manifests/"),
    faults.stalled("blobs/", 1000),
]


@pytest.mark.parametrize("fault", SPOILED, ids=lambda fault: f"{fault.path or 'all'}")
def test_a_spoiled_answer_of_a_mirror_costs_time_only(
    fault: Fault, site: Site, mirror: Registry, layout: Layout
) -> None:
    mirror.misbehave(fault)
    client = client_through(site, mirror, LIMITS)
    made = pull.fetch(client, cache.describe(client, site.ref), layout, max_bytes=MAX)
    assert made.size_bytes == int(site.image.labels["cache.triton.image/cache-size-bytes"])
    assert any(fault.matches(request.method, request.path) for request in mirror.requests)


def test_bytes_that_a_mirror_spoiled_in_an_earlier_pull_are_fetched_from_the_registry(
    site: Site, mirror: Registry, layout: Layout
) -> None:
    client = client_through(site, mirror, LIMITS)
    image = cache.describe(client, site.ref)
    layer = image.layers[0]
    with BlobFiles(layout.blobs).locked(image.ref, layer, lambda: None) as locked:
        locked.path.write_bytes(b"x" * 1000)
    assert pull.fetch(client, image, layout, max_bytes=MAX).files
    assert len(site.real.seen("GET", layer.digest)) == 1


def test_a_mirror_and_a_registry_with_the_same_wrong_blob_are_refused(
    site: Site, mirror: Registry, layout: Layout
) -> None:
    client = client_through(site, mirror, LIMITS)
    image = cache.describe(client, site.ref)
    mirror.misbehave(other_repository("blobs/"))
    site.real.misbehave(other_repository("blobs/"))
    with pytest.raises(GKMError) as caught:
        pull.fetch(client, image, layout, max_bytes=MAX)
    assert caught.value.reason is Reason.DIGEST_MISMATCH
    assert not list((layout.state / "store" / "sha256").glob("*"))
    assert not list(layout.blobs.iterdir())


def test_a_mirror_and_a_registry_with_the_same_wrong_manifest_are_refused(site: Site, mirror: Registry) -> None:
    mirror.misbehave(other_repository("manifests/", lambda _: OTHER))
    site.real.misbehave(other_repository("manifests/", lambda _: OTHER))
    with pytest.raises(GKMError) as caught:
        client_through(site, mirror, LIMITS).manifest(site.ref)
    assert caught.value.reason is Reason.DIGEST_MISMATCH


def test_a_small_blob_of_another_repository_is_replaced_by_that_of_the_registry(site: Site, mirror: Registry) -> None:
    client = client_through(site, mirror, LIMITS)
    layer = client.manifest(site.ref).image().layers[0]
    mirror.misbehave(other_repository("blobs/"))
    assert client.small_blob(site.ref, layer, layer.size) == blob_of(site.image, layer.digest)
    site.real.misbehave(other_repository("blobs/"))
    with pytest.raises(GKMError) as caught:
        client.small_blob(site.ref, layer, layer.size)
    assert caught.value.reason is Reason.DIGEST_MISMATCH


def test_an_empty_blob_of_a_mirror_costs_no_byte_of_the_registry(site: Site, mirror: Registry, layout: Layout) -> None:
    client = client_through(site, mirror, LIMITS)
    image = cache.describe(client, site.ref)
    layer = image.layers[0]
    mirror.misbehave(faults.tampered("blobs/", lambda _: b""))
    with BlobFiles(layout.blobs).locked(image.ref, layer, lambda: None) as locked:
        locked.path.write_bytes(blob_of(site.image, layer.digest)[:1000])
    site.real.requests.clear()
    assert pull.fetch(client, image, layout, max_bytes=MAX).files
    assert [request.headers.get("range") for request in site.real.seen("GET", layer.digest)] == ["bytes=1000-"]


def test_wrong_bytes_of_a_mirror_cost_no_byte_that_earlier_pulls_received_from_the_registry(
    site: Site, mirror: Registry, layout: Layout
) -> None:
    client = client_through(site, mirror, LIMITS)
    image = cache.describe(client, site.ref)
    layer = image.layers[0]
    mirror.misbehave(other_repository("blobs/"))
    for received in (1000, 2000):
        site.real.behave()
        site.real.misbehave(faults.truncated(layer.digest, 1000, times=1), faults.status(layer.digest, 503))
        with pytest.raises(GKMError) as caught:
            pull.fetch(client, image, layout, max_bytes=MAX)
        assert caught.value.reason is Reason.REGISTRY_UNAVAILABLE
        assert [path.stat().st_size for path in layout.blobs.iterdir()] == [received]
    site.real.behave()
    site.real.requests.clear()
    assert pull.fetch(client, image, layout, max_bytes=MAX).files
    assert [request.headers.get("range") for request in site.real.seen("GET", layer.digest)] == ["bytes=2000-"]


def test_damaged_bytes_of_the_registry_on_this_machine_are_fetched_again(
    site: Site, mirror: Registry, layout: Layout
) -> None:
    client = client_through(site, mirror, LIMITS)
    image = cache.describe(client, site.ref)
    mirror.misbehave(other_repository("blobs/"))
    with BlobFiles(layout.blobs).locked(image.ref, image.layers[0], lambda: None, REGISTRY_PART) as locked:
        locked.path.write_bytes(b"x" * 1000)
    assert pull.fetch(client, image, layout, max_bytes=MAX).files
    assert "range" not in site.real.seen("GET", image.layers[0].digest)[-1].headers
