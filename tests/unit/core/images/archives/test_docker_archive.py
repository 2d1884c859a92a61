import gzip
import hashlib
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from backports import zstd
from gkm.api.errors import GKMError, Reason
from gkm.images.archives import docker_archive
from gkm.images.archives.compression import inflated
from gkm.images.archives.docker_archive import MAX_MEMBERS
from gkm.images.cache import Format
from gkm.images.local_image import LocalImage
from gkm.images.pulling.extract import Extraction
from gkm.images.reference import Reference
from support.images.archives import MCV_ARCHIVE, Member, cache_image, content, file, tree

REF = Reference.parse("registry.example/team/vector-add:1")
LAYER = tree(("io.triton.cache/k", b"kernel"))
LABELS = {"cache.triton.image/summary": "s"}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def config(*layers: bytes) -> bytes:
    ids = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
    return json.dumps({"config": {"Labels": LABELS}, "rootfs": {"type": "layers", "diff_ids": ids}}).encode()


def listing(*layers: str, name: str = "config.json") -> bytes:
    return json.dumps([{"Config": name, "RepoTags": None, "Layers": layers}]).encode()


def saved(path: Path, *members: Member | tuple[str, bytes]) -> Path:
    path.write_bytes(tree(*members))
    return path


def simple(path: Path, layer: bytes = LAYER, unpacked: bytes = LAYER) -> Path:
    listed = listing("layer.tar")
    return saved(path, ("layer.tar", layer), ("config.json", config(unpacked)), ("manifest.json", listed))


def refused(path: Path, work: Path) -> GKMError:
    with pytest.raises(GKMError) as caught:
        docker_archive.open_archive(path, work)
    assert len(str(caught.value)) < 800
    return caught.value


def unpacked(image: LocalImage) -> list[bytes]:
    return [b"".join(inflated([content(blob)])) for blob in image.blobs[1:]]


def test_a_written_archive_reads_as_the_same_image(tmp_path: Path, work: Path) -> None:
    image = cache_image()
    docker_archive.write(image, tmp_path / "a.tar", REF)
    found = docker_archive.open_archive(tmp_path / "a.tar", work)
    assert (found.digest, found.labels) == (image.digest, image.labels)
    assert unpacked(found) == unpacked(image)


def test_it_is_written_as_docker_saves(tmp_path: Path) -> None:
    # docker's image specification v1.2: a configuration named by its digest, layers as plain tars, RepoTags.
    image = cache_image()
    docker_archive.write(image, tmp_path / "a.tar", REF)
    with tarfile.open(tmp_path / "a.tar") as archive:
        members = {member.name: archive.extractfile(member) for member in archive}
        (listed,) = json.load(members["manifest.json"] or tmp_path.open())
        layer, found = members[listed["Layers"][0]], members[listed["Config"]]
        assert layer is not None
        assert found is not None
        assert listed["RepoTags"] == ["registry.example/team/vector-add:1"]
        data = layer.read()
        assert listed["Layers"] == [f"{hashlib.sha256(data).hexdigest()}.tar"]
        assert [data] == unpacked(image)
        assert f"{hashlib.sha256(found.read()).hexdigest()}.json" == listed["Config"]


def test_an_image_without_a_tag_has_no_repo_tags(tmp_path: Path) -> None:
    image = cache_image()
    docker_archive.write(image, tmp_path / "a.tar", REF.pinned(image.digest))
    with tarfile.open(tmp_path / "a.tar") as archive:
        found = archive.extractfile("manifest.json")
        assert found is not None
        assert json.load(found)[0]["RepoTags"] is None


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"kept")
    with pytest.raises(GKMError) as caught:
        docker_archive.write(cache_image(), tmp_path / "a.tar", REF)
    assert caught.value.reason is Reason.NOT_ALLOWED
    assert (tmp_path / "a.tar").read_bytes() == b"kept"


def test_a_layer_that_changed_since_it_was_packed_leaves_no_archive(tmp_path: Path) -> None:
    image = cache_image()
    changed = replace(image.blobs[1], source=gzip.compress(b"x", mtime=0), offset=0)
    with pytest.raises(GKMError) as caught:
        docker_archive.write(replace(image, blobs=(image.blobs[0], changed)), tmp_path / "a.tar", REF)
    assert caught.value.reason is Reason.DIGEST_MISMATCH
    assert not list(tmp_path.iterdir())


def test_the_archive_that_mcv_published_is_read_despite_its_link(tmp_path: Path, work: Path) -> None:
    image = docker_archive.open_archive(MCV_ARCHIVE, work)
    assert image.labels["cache.triton.image/cache-size-bytes"] == "80415"
    made = Extraction(tmp_path / "out", [Format.TRITON], 1 << 20)
    made.destination.mkdir()
    made.layer([content(image.blobs[1])])
    assert made.size_bytes == 80415


def test_plain_layers_are_compressed_always_to_the_same_bytes(tmp_path: Path, work: Path) -> None:
    (tmp_path / "other").mkdir()
    image = docker_archive.open_archive(simple(tmp_path / "a.tar"), work)
    assert unpacked(image) == [LAYER]
    assert docker_archive.open_archive(tmp_path / "a.tar", tmp_path / "other").digest == image.digest


def test_layers_of_zstd_become_gzip_because_mcv_reads_nothing_else(tmp_path: Path, work: Path) -> None:
    image = docker_archive.open_archive(simple(tmp_path / "a.tar", zstd.compress(LAYER)), work)
    assert gzip.decompress(content(image.blobs[1])) == LAYER


def test_layers_of_gzip_stay_as_they_are(tmp_path: Path, work: Path) -> None:
    packed = gzip.compress(LAYER)
    image = docker_archive.open_archive(simple(tmp_path / "a.tar", packed), work)
    assert content(image.blobs[1]) == packed
    assert not list(work.iterdir())


def test_the_form_of_newer_docker_with_blobs_is_read(tmp_path: Path, work: Path) -> None:
    raw = config(LAYER)
    names = [f"blobs/sha256/{hashlib.sha256(data).hexdigest()}" for data in (raw, LAYER)]
    listed = listing(names[1], name=names[0])
    path = saved(tmp_path / "a.tar", (names[0], raw), (names[1], LAYER), ("manifest.json", listed), ("oci-layout", b""))
    assert docker_archive.open_archive(path, work).labels == LABELS


def test_an_archive_named_by_a_link_of_the_person_is_read(tmp_path: Path, work: Path) -> None:
    simple(tmp_path / "a.tar", gzip.compress(LAYER))
    (tmp_path / "link").symlink_to("a.tar")
    assert unpacked(docker_archive.open_archive(tmp_path / "link", work)) == [LAYER]


def test_a_layer_with_another_diff_id_than_the_configuration_is_refused(tmp_path: Path, work: Path) -> None:
    assert refused(simple(tmp_path / "a.tar", unpacked=b"other"), work).reason is Reason.DIGEST_MISMATCH


def test_a_packed_layer_with_another_diff_id_than_the_configuration_is_refused(tmp_path: Path, work: Path) -> None:
    path = simple(tmp_path / "a.tar", gzip.compress(LAYER), unpacked=b"other")
    assert refused(path, work).reason is Reason.DIGEST_MISMATCH


def test_a_configuration_with_another_digest_than_its_name_is_refused(tmp_path: Path, work: Path) -> None:
    name = "0" * 64 + ".json"
    listed = listing("layer.tar", name=name)
    path = saved(tmp_path / "a.tar", ("layer.tar", LAYER), (name, config(LAYER)), ("manifest.json", listed))
    assert refused(path, work).reason is Reason.DIGEST_MISMATCH


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "./layer.tar", "layer.tar/", "a/../layer.tar", ""])
def test_names_in_the_listing_only_select_members(tmp_path: Path, work: Path, name: str) -> None:
    (tmp_path / "secret").write_bytes(LAYER)
    members = (("layer.tar", LAYER), ("config.json", config(LAYER)), ("manifest.json", listing(name)))
    assert refused(saved(tmp_path / "a.tar", *members), work).reason is Reason.METADATA_MISSING


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_a_layer_that_is_a_link_is_not_followed(tmp_path: Path, work: Path, kind: bytes) -> None:
    link = file("layer.tar", b"", kind=kind)
    link[0].linkname = "/etc/passwd"
    path = saved(tmp_path / "a.tar", link, ("config.json", config(LAYER)), ("manifest.json", listing("layer.tar")))
    assert refused(path, work).reason is Reason.METADATA_MISSING


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "a\nb", "a//b"])
def test_members_whose_names_lead_elsewhere_are_refused(tmp_path: Path, work: Path, name: str) -> None:
    assert refused(saved(tmp_path / "a.tar", (name, b"")), work).reason is Reason.UNSAFE_CONTENT


def test_two_members_of_one_name_are_refused(tmp_path: Path, work: Path) -> None:
    path = saved(tmp_path / "a.tar", ("manifest.json", b"[]"), ("./manifest.json", listing("layer.tar")))
    assert refused(path, work).reason is Reason.UNSAFE_CONTENT


def test_a_device_is_refused(tmp_path: Path, work: Path) -> None:
    path = saved(tmp_path / "a.tar", file("disk", b"", kind=tarfile.BLKTYPE))
    assert refused(path, work).reason is Reason.UNSAFE_CONTENT


def test_more_members_than_an_image_has_are_refused(tmp_path: Path, work: Path) -> None:
    path = saved(tmp_path / "a.tar", *((f"{number}", b"") for number in range(MAX_MEMBERS + 1)))
    assert refused(path, work).reason is Reason.TOO_LARGE


def test_a_huge_listing_is_not_read(tmp_path: Path, work: Path) -> None:
    path = saved(tmp_path / "a.tar", ("manifest.json", b" " * ((1 << 20) + 1)))
    assert refused(path, work).reason is Reason.TOO_LARGE


@pytest.mark.parametrize("length", [0, 100, 600, 1024, 5000])
def test_an_archive_that_is_cut_off_is_refused(tmp_path: Path, work: Path, length: int) -> None:
    whole = simple(tmp_path / "a.tar").read_bytes()
    (tmp_path / "a.tar").write_bytes(whole[:length])
    assert refused(tmp_path / "a.tar", work).reason is Reason.CONTENT_MISMATCH


@pytest.mark.parametrize(
    "listed",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"[1]",
        b"\xff",
        b"[" * 100_000,
        b'[{"Config":"config.json"}]',
        b'[{"Config":"config.json","Layers":[]}]',
        b'[{"Config":"config.json","Layers":[1]}]',
        b'[{"Config":"config.json","Layers":["layer.tar","layer.tar"]}]',
        b'[{"Config":"config.json","Layers":["layer.tar"]},{"Config":"config.json","Layers":["layer.tar"]}]',
        b'[{"Config":"layer.tar","Layers":["layer.tar"]}]',
    ],
)
def test_a_listing_that_names_no_image_is_refused(tmp_path: Path, work: Path, listed: bytes) -> None:
    members = (("layer.tar", LAYER), ("config.json", config(LAYER)), ("manifest.json", listed))
    assert refused(saved(tmp_path / "a.tar", *members), work).reason is Reason.METADATA_INVALID


def test_a_tar_without_an_image_is_refused_by_its_missing_member(tmp_path: Path, work: Path) -> None:
    error = refused(saved(tmp_path / "a.tar", ("notes.txt", b"")), work)
    assert error.reason is Reason.METADATA_MISSING
    assert "manifest.json" in error.message


def test_a_layer_that_is_a_bomb_is_refused(tmp_path: Path, work: Path) -> None:
    bomb = gzip.compress(bytes(64 << 20))
    assert refused(simple(tmp_path / "a.tar", bomb), work).reason is Reason.UNSAFE_CONTENT
