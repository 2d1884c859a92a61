"""A mirror that answers with another repository's image, well-formed and signed: the registry's own is pulled."""

import gzip
from collections.abc import Callable, Iterator

import pytest
from gkm.hoststate.layout import Layout
from gkm.images import cache
from gkm.images.local_image import LocalImage
from gkm.images.pulling import pull
from gkm.images.reference import Reference
from gkm.images.registries import push
from support.images.archives import blob_of, image_of_layers, tree
from support.images.cache_registry import Site, client_of
from support.images.mirrors import client_through
from support.registry import faults
from support.registry.faults import Answer, Fault
from support.registry.server import Registry

MAX = 1 << 30


@pytest.fixture
def mirror(site: Site, built: LocalImage) -> Iterator[Registry]:
    with Registry.start() as mirror:
        push.image(client_of(mirror), Reference.parse(f"{mirror.host}/{site.ref.repository}:1"), built)
        yield mirror


def other_image() -> LocalImage:
    """Return the image of another repository: the same media types, other bytes."""
    return image_of_layers(gzip.compress(tree(("io.triton.cache/K/other.cubin", b"of another repository"))))


def answered(path: str, body: bytes, digest: str) -> Fault:
    """Answer with these bytes, under a Docker-Content-Digest of this value, and the stored Content-Type."""

    def change(answer: Answer) -> Answer:
        return answer._replace(headers={**answer.headers, "Docker-Content-Digest": digest}, body=body)

    return Fault(path, change, methods=frozenset({"GET"}))


def manifest_under_the_right_digest(ours: LocalImage, other: LocalImage) -> Fault:
    return answered("manifests/", other.manifest, ours.digest)


def manifest_under_its_own_digest(ours: LocalImage, other: LocalImage) -> Fault:
    del ours
    return answered("manifests/", other.manifest, other.digest)


def layer_under_the_right_digest(ours: LocalImage, other: LocalImage) -> Fault:
    digest = ours.blobs[-1].descriptor.digest
    return answered(f"blobs/{digest}", blob_of(other, other.blobs[-1].descriptor.digest), digest)


def configuration_under_its_own_digest(ours: LocalImage, other: LocalImage) -> Fault:
    found = other.blobs[0].descriptor.digest
    return answered(f"blobs/{ours.blobs[0].descriptor.digest}", blob_of(other, found), found)


@pytest.mark.parametrize(
    "spoiled",
    [
        manifest_under_the_right_digest,
        manifest_under_its_own_digest,
        layer_under_the_right_digest,
        configuration_under_its_own_digest,
    ],
)
def test_the_registry_is_asked_next_and_its_image_is_pulled(
    spoiled: Callable[[LocalImage, LocalImage], Fault], site: Site, mirror: Registry, layout: Layout
) -> None:
    other = other_image()
    fault = spoiled(site.image, other)
    mirror.misbehave(fault)
    site.real.requests.clear()
    client = client_through(site, mirror)
    entry = pull.fetch(client, cache.describe(client, site.ref), layout, max_bytes=MAX)
    assert entry.digest == site.ref.digest
    assert entry.size_bytes == int(site.image.labels["cache.triton.image/cache-size-bytes"])
    assert [request for request in mirror.requests if fault.matches(request.method, request.path)]
    assert [request for request in site.real.requests if fault.matches(request.method, request.path)]
    assert not [path for path in layout.blobs.iterdir() if other.blobs[-1].descriptor.digest[7:] in path.name]


def test_a_whole_image_of_another_repository_is_described_by_the_registry_alone(site: Site, mirror: Registry) -> None:
    """Every answer of the mirror is consistent with the others, so only the pinned digest shows the difference."""
    other = other_image()
    mirror.misbehave(
        answered("manifests/", other.manifest, other.digest),
        *(
            answered(f"blobs/{ours.descriptor.digest}", blob_of(other, theirs.descriptor.digest), "")
            for ours, theirs in zip(site.image.blobs, other.blobs, strict=True)
        ),
    )
    described = cache.describe(client_through(site, mirror), site.ref)
    assert described.digest == site.ref.digest
    assert [layer.digest for layer in described.layers] == [site.image.blobs[-1].descriptor.digest]


def test_the_digest_of_a_tag_is_that_of_the_bytes_whatever_the_header_states(site: Site, mirror: Registry) -> None:
    client = client_through(site, mirror)
    mirror.misbehave(faults.wrong_digest_header("manifests/", other_image().digest))
    assert client.resolve(site.ref.tagged("1")) == site.ref.digest
