"""A layout as a place for images: layouts of other tools, hostile ones, and ones that a killed process left."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.images.archives import layout_store, oci_layout
from gkm.images.archives.layout_store import MAX_LISTED, LayoutStore
from gkm.images.copying import attached
from gkm.images.local_image import BlobDownload, ByteCounter, LocalBlob, LocalImage
from gkm.images.local_reference import LocalReference
from gkm.images.reference import Reference
from gkm.images.registries import push
from support.images.archives import cache_image, content
from support.images.layouts import artifact, blob_at, listed, name_of, stored
from support.registry.store import OCI_INDEX, OCI_MANIFEST, digest_of

OTHER = digest_of(b"another image")


@pytest.fixture(scope="module")
def image() -> LocalImage:
    return cache_image()


@pytest.fixture
def layout(tmp_path: Path, image: LocalImage) -> Path:
    oci_layout.write(image, tmp_path / "layout", Reference.parse("registry.example/team/vector-add:1"))
    return tmp_path / "layout"


def ref_of(layout: Path, tag: str | None = None, digest: str | None = None) -> LocalReference:
    return LocalReference("oci", str(layout), tag, digest)


def beside(layout: Path, image: LocalImage) -> list[tuple[str, str, str]]:
    """Return digest, subject and suffix of each artifact that is attached to the image of a layout."""
    found = attached(LayoutStore(layout), ref_of(layout, digest=image.digest))
    return [(each.manifest.digest, each.subject, each.suffix) for each in found]


def refused(layout: Path, read: Callable[[LayoutStore, LocalReference], object], **where: str) -> GKMError:
    with pytest.raises(GKMError) as caught:
        read(LayoutStore(layout), ref_of(layout, **where))
    assert len(str(caught.value)) < 800
    return caught.value


@pytest.mark.parametrize("tag", [None, "1"])
def test_the_only_image_needs_no_tag(layout: Path, image: LocalImage, tag: str | None) -> None:
    assert LayoutStore(layout).resolve(ref_of(layout, tag)) == image.digest


def test_every_blob_is_read_and_also_its_rest(layout: Path, image: LocalImage) -> None:
    for blob in image.blobs:
        parts: list[bytes] = []
        download = BlobDownload(blob.descriptor, parts.append)
        download.resume([content(blob)[:10]])
        LayoutStore(layout).blob(ref_of(layout), download)
        assert b"".join(parts) == content(blob)[10:]


def test_referrers_in_the_index_are_read_each_behind_its_subject(layout: Path, image: LocalImage) -> None:
    """As `oras cp -r` writes them."""
    first = listed(layout, artifact(layout, image.digest))
    second = listed(layout, artifact(layout, first))
    assert beside(layout, image) == [(first, image.digest, ""), (second, first, "")]
    assert LayoutStore(layout).resolve(ref_of(layout)) == image.digest


def test_an_index_of_referrers_and_the_tags_of_cosign_are_read(layout: Path, image: LocalImage) -> None:
    """As `regctl image copy --referrers --digest-tags` writes them."""
    referrer = stored(layout, json.dumps(artifact(layout, image.digest)).encode(), OCI_MANIFEST)
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [referrer]}
    listed(layout, index, OCI_INDEX, **name_of(image.digest))
    signatures = listed(layout, artifact(layout, None), **name_of(image.digest, ".sig"))
    assert beside(layout, image) == [(referrer["digest"], image.digest, ""), (signatures, image.digest, ".sig")]
    assert LayoutStore(layout).resolve(ref_of(layout)) == image.digest


def test_what_cosign_saved_is_read_by_its_annotation(layout: Path, image: LocalImage) -> None:
    mark = "dev.cosignproject.cosign"
    listed(layout, image.manifest, kind=f"{mark}/image")
    expected = [
        (listed(layout, artifact(layout, None, kind.encode()), kind=f"{mark}/{kind}"), image.digest, suffix)
        for kind, suffix in (("sigs", ".sig"), ("atts", ".att"))
    ]
    assert beside(layout, image) == expected


def test_an_image_under_the_tag_of_its_digest_is_the_image(layout: Path, image: LocalImage) -> None:
    """As `cosign copy` names it."""
    listed(layout, image.manifest, **name_of(image.digest))
    assert LayoutStore(layout).resolve(ref_of(layout)) == image.digest


def test_artifacts_about_another_image_are_left_alone(layout: Path, image: LocalImage) -> None:
    listed(layout, artifact(layout, OTHER))
    listed(layout, artifact(layout, None), **name_of(OTHER, ".sig"))
    assert beside(layout, image) == []


def test_two_images_need_a_tag(layout: Path, image: LocalImage) -> None:
    other = listed(layout, image.manifest + b"\n", **{"org.opencontainers.image.ref.name": "2"})
    error = refused(layout, LayoutStore.resolve)
    assert (error.reason, "names 2 images" in error.message) == (Reason.METADATA_INVALID, True)
    assert LayoutStore(layout).resolve(ref_of(layout, "2")) == other
    assert LayoutStore(layout).tags(ref_of(layout), 10) == ["1", "2"]


def test_a_tag_of_two_images_is_refused(layout: Path, image: LocalImage) -> None:
    listed(layout, image.manifest + b"\n", **{"org.opencontainers.image.ref.name": "1"})
    assert refused(layout, LayoutStore.resolve, tag="1").reason is Reason.METADATA_INVALID


def test_a_layout_takes_no_more_manifests_than_are_read(
    layout: Path, image: LocalImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest beyond the limit was written, and then no image of the layout could be read."""
    monkeypatch.setattr(layout_store, "MAX_LISTED", 2)
    push.image(LayoutStore(layout), ref_of(layout, "2"), image)
    error = refused(layout, lambda place, ref: push.image(place, ref, image), tag="3")
    assert (error.reason, "lists 3 manifests, at most 2 are read" in error.message) == (Reason.TOO_LARGE, True)
    assert LayoutStore(layout).resolve(ref_of(layout, "2")) == image.digest


def outside(layout: Path, image: LocalImage) -> None:
    """The blob of the manifest is a link to a file with the same bytes: they must not be read all the same."""
    blob = blob_at(layout, image.digest)
    (layout.parent / "outside").write_bytes(blob.read_bytes())
    blob.unlink()
    blob.symlink_to(layout.parent / "outside")


def linked_directory(layout: Path, _: LocalImage) -> None:
    (layout / "blobs").rename(layout.parent / "elsewhere")
    (layout / "blobs").symlink_to(layout.parent / "elsewhere")


def escaping(layout: Path, _: LocalImage) -> None:
    entry = {"mediaType": OCI_MANIFEST, "digest": "sha256:../../../../etc/passwd", "size": 1}
    (layout / "index.json").write_text(json.dumps({"manifests": [entry]}))


def changed(layout: Path, image: LocalImage) -> None:
    blob = blob_at(layout, image.digest)
    blob.write_bytes(blob.read_bytes().replace(b"2", b"3", 1))


def crowded(layout: Path, _: LocalImage) -> None:
    entry = {"mediaType": OCI_MANIFEST, "digest": OTHER, "size": 2}
    (layout / "index.json").write_text(json.dumps({"manifests": [entry] * (MAX_LISTED + 1)}))


def pipe(layout: Path, image: LocalImage) -> None:
    blob_at(layout, image.digest).unlink()
    os.mkfifo(blob_at(layout, image.digest))


@pytest.mark.parametrize(
    ("change", "reason", "says"),
    [
        (outside, Reason.UNSAFE_CONTENT, "cannot be used"),
        (linked_directory, Reason.UNSAFE_CONTENT, "cannot be used"),
        (escaping, Reason.METADATA_INVALID, "digest"),
        (changed, Reason.DIGEST_MISMATCH, "was changed or is damaged"),
        (crowded, Reason.TOO_LARGE, "lists 4097 manifests"),
        (pipe, Reason.UNSAFE_CONTENT, "is not a plain file"),
        (lambda layout, _: (layout / "index.json").write_bytes(b" " * (5 << 20)), Reason.TOO_LARGE, "more than"),
        (lambda layout, _: (layout / "oci-layout").write_bytes(b" " * 4097), Reason.TOO_LARGE, "more than"),
        (lambda layout, _: (layout / "index.json").unlink(), Reason.METADATA_MISSING, "not complete"),
    ],
)
def test_a_hostile_layout_is_refused(
    layout: Path, image: LocalImage, change: Callable[[Path, LocalImage], object], reason: Reason, says: str
) -> None:
    change(layout, image)
    error = refused(layout, LayoutStore.resolve)
    assert (error.reason, says in error.message) == (reason, True), error.message


def test_manifests_are_not_read_without_end_for_referrers(layout: Path, image: LocalImage) -> None:
    for number in range(9):
        raw = json.dumps(artifact(layout, image.digest) | {"annotations": {"a": str(number) * (4 << 20)}})[: (4 << 20)]
        listed(layout, raw.encode())
    error = refused(layout, LayoutStore.referrers, digest=image.digest)
    assert error.reason in (Reason.TOO_LARGE, Reason.METADATA_INVALID)


def test_a_path_without_a_layout_is_not_found(tmp_path: Path) -> None:
    assert refused(tmp_path / "nothing", LayoutStore.resolve).reason is Reason.NOT_FOUND


def test_a_blob_of_another_size_is_not_written(layout: Path, image: LocalImage) -> None:
    layer = image.blobs[1].descriptor
    with blob_at(layout, layer.digest).open("ab") as file:
        file.write(b"more")
    written: list[bytes] = []
    with pytest.raises(GKMError, match="its manifest says") as caught:
        LayoutStore(layout).blob(ref_of(layout), BlobDownload(layer, written.append))
    assert (caught.value.reason, written) == (Reason.DIGEST_MISMATCH, [])


def test_a_new_layout_is_one_that_other_readers_accept(tmp_path: Path, image: LocalImage) -> None:
    ref = ref_of(tmp_path / "new", "1")
    push.image(LayoutStore(ref.path), ref, image)
    assert oci_layout.open_layout(ref.path).digest == image.digest
    index = json.loads((ref.path / "index.json").read_bytes())
    assert [each["annotations"] for each in index["manifests"]] == [{"org.opencontainers.image.ref.name": "1"}]


def test_a_tag_moves_and_entries_of_others_stay(layout: Path, image: LocalImage) -> None:
    index = json.loads((layout / "index.json").read_bytes())
    foreign = {"mediaType": "application/x", "digest": OTHER, "size": 1, "urls": ["https://example.com"]}
    index |= {"manifests": [*index["manifests"], foreign], "annotations": {"mine": "yes"}}
    (layout / "index.json").write_text(json.dumps(index))
    raw = image.manifest + b"\n"
    LayoutStore(layout).store_manifest(ref_of(layout, "1"), raw, image.media_type)
    after = json.loads((layout / "index.json").read_bytes())
    assert after["annotations"] == {"mine": "yes"}
    assert [each["digest"] for each in after["manifests"]] == [OTHER, digest_of(raw)]
    assert after["manifests"][0] == foreign


def test_a_blob_that_was_cut_off_is_no_blob_and_is_written_again(tmp_path: Path, image: LocalImage) -> None:
    store, ref, blob = LayoutStore(tmp_path / "new"), ref_of(tmp_path / "new"), image.blobs[1]

    def end(_done: int, _of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # the process ends in the middle
        store.store_blob(ref, blob, ByteCounter(end, 1))
    assert not store.blob_exists(ref, blob.descriptor)
    store.store_blob(ref, blob, ByteCounter(lambda _done, _of: None, 1))
    assert store.blob_exists(ref, blob.descriptor)
    assert [path.name for path in (tmp_path / "new/blobs/sha256").iterdir()] == [blob.descriptor.digest[7:]]


def test_a_damaged_blob_does_not_exist(layout: Path, image: LocalImage) -> None:
    layer = image.blobs[1].descriptor
    path = blob_at(layout, layer.digest)
    path.write_bytes(bytes(layer.size))
    assert not LayoutStore(layout).blob_exists(ref_of(layout), layer)


def test_a_blob_with_another_digest_is_not_stored(layout: Path, image: LocalImage) -> None:
    wrong = LocalBlob(image.blobs[1].descriptor, bytes(image.blobs[1].descriptor.size))
    blob_at(layout, wrong.descriptor.digest).unlink()
    with pytest.raises(GKMError, match="was changed or is damaged") as caught:
        LayoutStore(layout).store_blob(ref_of(layout), wrong, ByteCounter(lambda _done, _of: None, 1))
    assert caught.value.reason is Reason.DIGEST_MISMATCH
    assert not blob_at(layout, wrong.descriptor.digest).exists()


@pytest.mark.parametrize("part", ["blobs", "blobs/sha256"])
def test_a_layout_that_leads_elsewhere_is_not_written(layout: Path, image: LocalImage, part: str) -> None:
    elsewhere = layout.parent / "elsewhere"
    (layout / part).rename(elsewhere)
    (layout / part).symlink_to(elsewhere)
    before = sorted(elsewhere.rglob("*"))
    with pytest.raises(GKMError, match="leads elsewhere") as caught:
        LayoutStore(layout).store_manifest(ref_of(layout, "1"), image.manifest + b"\n", image.media_type)
    assert (caught.value.reason, sorted(elsewhere.rglob("*"))) == (Reason.UNSAFE_CONTENT, before)
