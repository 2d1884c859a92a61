"""Blobs that were damaged on this machine are fetched again, and the registry is not blamed."""

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.hoststate.layout import Layout
from gkm.images import cache
from gkm.images.cache import CacheImage
from gkm.images.pulling import pull
from gkm.images.pulling.blob_files import BlobFiles
from support.images.archives import blob_of
from support.images.cache_registry import Site
from support.registry import faults

MAX = 1 << 30


def never() -> None:
    raise AssertionError("nobody else holds it")


def described(site: Site) -> CacheImage:
    return cache.describe(site.client, site.ref)


@pytest.mark.parametrize("spoil", [lambda part: b"x" * len(part), lambda part: part + b"x" * 10_000_000])
def test_a_damaged_partial_blob_is_fetched_from_its_start(site: Site, layout: Layout, spoil: object) -> None:
    image = described(site)
    blob = blob_of(site.image, image.layers[0].digest)
    with BlobFiles(layout.blobs).locked(image.ref, image.layers[0], never) as held:
        held.path.write_bytes(spoil(blob[:1000]))  # type: ignore[operator]
    reports: list[int] = []
    assert pull.fetch(
        site.client, image, layout, max_bytes=MAX, progress=lambda _, percent: reports.append(percent)
    ).files
    assert "range" not in site.real.seen("GET", image.layers[0].digest)[-1].headers
    assert max(reports) == 100


def test_a_whole_blob_that_was_damaged_on_disk_is_fetched_again(site: Site, layout: Layout) -> None:
    image = described(site)
    blob = blob_of(site.image, image.layers[0].digest)
    with BlobFiles(layout.blobs).locked(image.ref, image.layers[0], never) as held:
        held.path.write_bytes(faults.flipped(blob))
        held.finalize(layout.blobs.parent / "of-another-pull")
    assert pull.fetch(site.client, image, layout, max_bytes=MAX).files
    assert len(site.real.seen("GET", image.layers[0].digest)) == 1


def test_the_registry_is_blamed_only_for_a_download_from_the_first_byte(site: Site, layout: Layout) -> None:
    image = described(site)
    layer = image.layers[0]
    with BlobFiles(layout.blobs).locked(image.ref, layer, never) as held:
        held.path.write_bytes(blob_of(site.image, layer.digest)[:1000])
    site.real.misbehave(faults.tampered(f"blobs/{layer.digest}"))
    with pytest.raises(GKMError) as caught:
        pull.fetch(site.client, image, layout, max_bytes=MAX)
    assert caught.value.reason is Reason.DIGEST_MISMATCH
    assert ["range" in request.headers for request in site.real.seen("GET", layer.digest)] == [True, False]
    assert not list(layout.blobs.iterdir())
