import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.images.archives import oci_layout
from gkm.images.configuration import MAX_CONFIG_BYTES
from gkm.images.local_image import LocalImage
from gkm.images.reference import Reference
from support.images.archives import cache_image, content, image_of_layers, packed, tree
from support.registry.store import OCI_MANIFEST, digest_of

REF = Reference.parse("registry.example/team/vector-add:1")
Change = Callable[[Path], object]
OTHER = digest_of(b"another image")


@pytest.fixture(scope="module")
def image() -> LocalImage:
    return cache_image()


@pytest.fixture
def layout(tmp_path: Path, image: LocalImage) -> Path:
    oci_layout.write(image, tmp_path / "layout", REF)
    return tmp_path / "layout"


def blob(layout: Path, digest: str) -> Path:
    return layout / "blobs" / "sha256" / digest.removeprefix("sha256:")


def layer(layout: Path) -> Path:
    return blob(layout, json.loads(blob(layout, listed(layout)["digest"]).read_bytes())["layers"][0]["digest"])


def listed(layout: Path) -> Any:  # noqa: ANN401 -- JSON
    return json.loads((layout / "index.json").read_bytes())["manifests"][0]


def refused(layout: Path) -> GKMError:
    with pytest.raises(GKMError) as caught:
        oci_layout.open_layout(layout)
    assert len(str(caught.value)) < 800
    return caught.value


def test_a_written_layout_reads_with_the_same_digest(layout: Path, image: LocalImage) -> None:
    found = oci_layout.open_layout(layout)
    assert (found.digest, found.manifest, found.labels) == (image.digest, image.manifest, image.labels)
    assert [content(blob) for blob in found.blobs] == [content(blob) for blob in image.blobs]


def test_a_written_layout_follows_the_specification(layout: Path, image: LocalImage) -> None:
    # image-spec 1.1, "Image Layout": oci-layout, index.json, blobs/<alg>/<encoded>.
    assert json.loads((layout / "oci-layout").read_bytes()) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads((layout / "index.json").read_bytes())
    assert index["schemaVersion"] == 2
    assert listed(layout) == {
        "mediaType": image.media_type,
        "digest": image.digest,
        "size": len(image.manifest),
        "annotations": {
            "org.opencontainers.image.ref.name": "1",
            "io.containerd.image.name": "registry.example/team/vector-add:1",
        },
    }
    assert len(list((layout / "blobs" / "sha256").iterdir())) == 3


def test_an_image_without_a_tag_is_not_named(tmp_path: Path, image: LocalImage) -> None:
    oci_layout.write(image, tmp_path / "layout", REF.pinned(image.digest))
    assert listed(tmp_path / "layout")["annotations"] == {}


def test_nothing_is_written_over(tmp_path: Path, image: LocalImage) -> None:
    (tmp_path / "layout").mkdir()
    with pytest.raises(GKMError) as caught:
        oci_layout.write(image, tmp_path / "layout", REF)
    assert caught.value.reason is Reason.NOT_ALLOWED
    assert not list((tmp_path / "layout").iterdir())


def test_a_layer_that_changed_since_it_was_packed_leaves_no_layout(tmp_path: Path, image: LocalImage) -> None:
    changed = replace(image.blobs[1], source=b"x" * image.blobs[1].descriptor.size)
    with pytest.raises(GKMError) as caught:
        oci_layout.write(replace(image, blobs=(image.blobs[0], changed)), tmp_path / "layout", REF)
    assert caught.value.reason is Reason.DIGEST_MISMATCH
    assert not list(tmp_path.iterdir())


def test_a_report_that_ends_the_writing_leaves_nothing(tmp_path: Path, image: LocalImage) -> None:
    def interrupt(_done: int, _of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        oci_layout.write(image, tmp_path / "layout", REF, interrupt)
    assert not list(tmp_path.iterdir())


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    "change",
    [
        lambda layout: flipped(layer(layout)),
        lambda layout: flipped(blob(layout, listed(layout)["digest"])),
        lambda layout: os.truncate(layer(layout), 100),
        lambda layout: layer(layout).write_bytes(layer(layout).read_bytes() + b"more"),
        lambda layout: layer(layout).write_bytes(b""),
    ],
)
def test_bytes_of_another_digest_or_size_are_refused(layout: Path, change: Change) -> None:
    change(layout)
    assert refused(layout).reason is Reason.DIGEST_MISMATCH


def linked(path: Path) -> None:
    path.rename(path.with_name("kept"))
    path.symlink_to("kept")


def removed(path: Path) -> Path:
    path.unlink()
    return path


@pytest.mark.parametrize(
    "change",
    [
        lambda layout: linked(layer(layout)),
        lambda layout: linked(layout / "blobs"),
        lambda layout: linked(layout / "blobs" / "sha256"),
        lambda layout: linked(layout / "index.json"),
        lambda layout: linked(layout / "oci-layout"),
        lambda layout: os.mkfifo(removed(layer(layout))),
        lambda layout: removed(layer(layout)).mkdir(),
    ],
)
def test_links_pipes_and_directories_instead_of_files_are_refused(layout: Path, change: Change) -> None:
    change(layout)
    assert refused(layout).reason is Reason.UNSAFE_CONTENT


@pytest.mark.parametrize("missing", ["oci-layout", "index.json", "blobs"])
def test_a_layout_that_is_not_complete_is_refused(layout: Path, missing: str) -> None:
    (layout / missing).rename(layout / "elsewhere")
    error = refused(layout)
    assert error.reason is Reason.METADATA_MISSING
    assert missing in error.message


def rewritten(**changes: object) -> Change:
    """Change the one descriptor of the index."""

    def change(layout: Path) -> None:
        (layout / "index.json").write_text(json.dumps({"manifests": [listed(layout) | changes]}))

    return change


@pytest.mark.parametrize(
    "change",
    [
        rewritten(digest="sha256:../../../../etc/passwd"),
        rewritten(digest="sha512:" + "0" * 128),
        rewritten(digest="sha256:" + "A" * 64),
        rewritten(size=-1),
        rewritten(size="1"),
        rewritten(mediaType="application/vnd.oci.image.index.v1+json"),
        rewritten(mediaType="application/vnd.docker.distribution.manifest.v2+json"),
        rewritten(mediaType="text/html"),
        lambda layout: (layout / "index.json").write_text('{"manifests":[]}'),
        lambda layout: (layout / "index.json").write_text('{"manifests":null}'),
        lambda layout: (layout / "index.json").write_bytes(b"\xff"),
        lambda layout: (layout / "index.json").write_text("[" * 100_000),
        lambda layout: (layout / "oci-layout").write_text('{"imageLayoutVersion":"2.0.0"}'),
        lambda layout: (layout / "oci-layout").write_text("{}"),
    ],
)
def test_an_index_that_names_no_image_of_ours_is_refused(layout: Path, change: Change) -> None:
    change(layout)
    assert refused(layout).reason is Reason.METADATA_INVALID


def test_an_index_with_several_images_is_refused_with_their_number(layout: Path) -> None:
    added(layout, blob(layout, listed(layout)["digest"]).read_bytes() + b"\n")
    error = refused(layout)
    assert error.reason is Reason.METADATA_INVALID
    assert "2 images" in error.message


def added(layout: Path, manifest: bytes | dict[str, Any], media_type: str = OCI_MANIFEST, **annotations: str) -> str:
    """Add a manifest to the layout and its index; return its digest."""
    described = stored(layout, manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode(), media_type)
    index = json.loads((layout / "index.json").read_bytes())
    index["manifests"].insert(0, described | {"annotations": annotations})
    (layout / "index.json").write_text(json.dumps(index))
    return str(described["digest"])


def stored(layout: Path, data: bytes, kind: str) -> dict[str, Any]:
    """Add a blob to the layout; return its descriptor."""
    found = {"mediaType": kind, "digest": digest_of(data), "size": len(data)}
    blob(layout, str(found["digest"])).write_bytes(data)
    return found


def test_the_same_image_under_two_names_is_one_image(layout: Path, image: LocalImage) -> None:
    named = [listed(layout) | {"annotations": {"org.opencontainers.image.ref.name": name}} for name in ("a", "b")]
    (layout / "index.json").write_text(json.dumps({"manifests": named}))
    assert oci_layout.open_layout(layout).digest == image.digest


@pytest.mark.parametrize(("name", "size"), [("index.json", (4 << 20) + 1), ("oci-layout", 4097)])
def test_files_that_are_too_large_are_not_read(layout: Path, name: str, size: int) -> None:
    (layout / name).write_bytes(b" " * size)
    assert refused(layout).reason is Reason.TOO_LARGE


def test_a_configuration_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    oci_layout.write(packed(tree(), config=b" " * (MAX_CONFIG_BYTES + 1)), tmp_path / "layout", REF)
    assert refused(tmp_path / "layout").reason is Reason.TOO_LARGE


def test_more_layers_than_a_pull_accepts_are_refused(tmp_path: Path) -> None:
    oci_layout.write(image_of_layers(*(bytes([number]) for number in range(65))), tmp_path / "layout", REF)
    assert refused(tmp_path / "layout").reason is Reason.METADATA_INVALID
