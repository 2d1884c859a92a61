"""The real distribution as a pull-through cache: after the first node, the registry itself sends no content."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from gkm.api.config import Registries, RegistryHost
from gkm.hoststate.layout import Layout
from gkm.images import cache
from gkm.images.local_image import LocalImage
from gkm.images.pulling import pull
from gkm.images.reference import Reference
from gkm.images.registries import push
from gkm.images.registries.registry import Registry
from support.host.waiting import until
from support.images.cache_registry import PATIENT, client_of
from support.peers import require
from support.registry.distribution import Distribution
from support.registry.server import Registry as Origin
from support.registry.store import OCI_MANIFEST

REPOSITORY = "team/vector-add"
MAX = 1 << 30


@pytest.fixture
def origin(built: LocalImage) -> Iterator[Origin]:
    with Origin.start() as origin:
        push.image(client_of(origin, limits=PATIENT), Reference.parse(f"{origin.host}/{REPOSITORY}:1"), built)
        origin.requests.clear()
        yield origin


@pytest.fixture
def mirror(origin: Origin, tmp_path: Path) -> Iterator[Distribution]:
    require.peer("distribution")
    with Distribution.start(tmp_path / "mirror", proxy=origin.url) as mirror:
        yield mirror


def node(origin: Origin, mirror: Distribution) -> Registry:
    hosts = {
        origin.host: RegistryHost(plain_http=True, mirrors=[mirror.host]),
        mirror.host: RegistryHost(plain_http=True),
    }
    return Registry(Registries(hosts=hosts), limits=PATIENT)


def fetched(origin: Origin, mirror: Distribution, built: LocalImage, directory: Path) -> int:
    """Pull the image as a new node with its own disk; return the bytes of its entry."""
    layout = Layout(directory / "state", directory / "run")
    layout.make_directories()
    client = node(origin, mirror)
    pinned = Reference.parse(f"{origin.host}/{REPOSITORY}:1").pinned(built.digest)
    return pull.fetch(client, cache.describe(client, pinned), layout, max_bytes=MAX).size_bytes


def test_the_registry_sends_one_copy_however_many_nodes_pull(
    origin: Origin, mirror: Distribution, built: LocalImage, tmp_path: Path
) -> None:
    expected = int(built.labels["cache.triton.image/cache-size-bytes"])
    for number in range(5):
        assert fetched(origin, mirror, built, tmp_path / f"node-{number}") == expected
        for blob in built.blobs:
            until(partial(mirror.has_blob, REPOSITORY, blob.descriptor.digest), "the mirror stores it")
    for blob in built.blobs:
        assert len(origin.seen("GET", f"blobs/{blob.descriptor.digest}")) == 1
    assert len(origin.seen("GET", f"manifests/{built.digest}")) == 1
    assert not any("ns=" in request.path for request in origin.requests)


def test_a_new_image_of_a_tag_is_seen_through_the_mirror(
    origin: Origin, mirror: Distribution, built: LocalImage
) -> None:
    tagged = Reference.parse(f"{origin.host}/{REPOSITORY}:1")
    client = node(origin, mirror)
    assert client.resolve(tagged) == built.digest
    moved = origin.store.put_manifest(REPOSITORY, {"schemaVersion": 2, "mediaType": OCI_MANIFEST}, tag="1")
    assert client.resolve(tagged) == moved


def test_attached_artifacts_are_found_although_the_mirror_has_no_list_of_them(
    origin: Origin, mirror: Distribution, built: LocalImage
) -> None:
    subject = {"mediaType": OCI_MANIFEST, "digest": built.digest, "size": 1}
    origin.store.put_manifest(REPOSITORY, {"subject": subject, "artifactType": "application/x"})
    pinned = Reference.parse(f"{origin.host}/{REPOSITORY}:1").pinned(built.digest)
    assert len(node(origin, mirror).referrers(pinned)) == 1


def test_a_mirror_that_went_away_costs_nothing_but_the_egress(
    origin: Origin, built: LocalImage, tmp_path: Path
) -> None:
    require.peer("distribution")
    with Distribution.start(tmp_path / "mirror", proxy=origin.url) as mirror:
        pass
    assert fetched(origin, mirror, built, tmp_path / "node")
    assert origin.seen("GET", "blobs/")
