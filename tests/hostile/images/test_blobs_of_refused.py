"""The blobs that remain of a refused image, and of pulls beyond the bound of all blobs."""

from pathlib import Path

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.hoststate.layout import Layout
from gkm.images import cache
from gkm.images.pulling import blob_files, pull
from gkm.images.pulling.blob_files import BlobFiles
from support.images.archives import tree
from support.images.hostile_row import MAX_BYTES
from support.images.hostile_scene import GOOD, Scene, scene
from support.registry import faults

BAD = tree(("io.triton.cache/../escape", b"x"))


def fetched(site: Scene, layout: Layout) -> None:
    registry = site.client()
    image = cache.describe(registry, site.ref.pinned(registry.resolve(site.ref)))
    pull.fetch(registry, image, layout, max_bytes=MAX_BYTES)


def names(layout: Layout) -> set[str]:
    return {path.name.partition("-")[2] for path in layout.blobs.iterdir()}


def test_all_blobs_of_a_refused_image_go_its_parts_too(tmp_path: Path, layout: Layout) -> None:
    with scene(tmp_path) as site:
        site.put(tree(("io.triton.cache/a", b"a" * 9000)), GOOD, BAD)
        site.real.misbehave(faults.truncated(f"blobs/{site.layers[0]}", 3000, times=1))
        site.real.misbehave(faults.status(site.layers[0], 503))
        with pytest.raises(GKMError) as caught:
            fetched(site, layout)
        assert caught.value.reason is Reason.REGISTRY_UNAVAILABLE
        assert names(layout)
        site.real.behave()
        with pytest.raises(GKMError, match="leads elsewhere"):
            fetched(site, layout)
    assert names(layout) == set()


def test_a_blob_that_another_pull_has_locked_stays(tmp_path: Path, layout: Layout) -> None:
    with scene(tmp_path) as site:
        site.put(GOOD)
        registry = site.client()
        image = cache.describe(registry, site.ref.pinned(registry.resolve(site.ref)))
        files = BlobFiles(layout.blobs)
        with files.locked(image.ref, image.layers[0], lambda: None) as held:
            files.drop(image.ref, image.layers)
            assert held.path.exists()
        files.drop(image.ref, image.layers)
        assert not held.path.exists()


def test_blobs_of_an_image_that_was_killed_while_it_was_refused_go_with_its_next_try(
    tmp_path: Path, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scene(tmp_path) as site:
        site.put(GOOD, BAD)
        with monkeypatch.context() as killed:
            killed.setattr(BlobFiles, "drop", lambda *_: None)
            with pytest.raises(GKMError, match="leads elsewhere"):
                fetched(site, layout)
        assert len(names(layout)) == 2
        with pytest.raises(GKMError, match="leads elsewhere"):
            fetched(site, layout)
    assert names(layout) == set()


def test_blobs_are_within_their_bound_after_every_pull(
    tmp_path: Path, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_files, "MAX_CACHED_BYTES", 30_000)
    with scene(tmp_path) as site:
        for number in range(3):
            site.put(tree((f"io.triton.cache/{number}", b"x" * 15_000)))
            fetched(site, layout)
            assert 0 < sum(path.stat().st_size for path in layout.blobs.iterdir()) <= 30_000
