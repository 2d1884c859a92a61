import gzip
from pathlib import Path

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.api.targets import GpuTarget
from gkm.hoststate.layout import Layout
from gkm.images import cache
from gkm.images.archives import docker_archive, oci_layout
from gkm.images.archives.local_source import reference_to
from gkm.images.pulling import pull
from gkm.images.reference import Reference
from gkm.images.registries import push
from support.images.archives import MCV_ARCHIVE, cache_image
from support.images.cache_registry import Site

REF = Reference.parse("registry.example/team/vector-add:1")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def test_the_content_decides_between_layout_and_archive(tmp_path: Path) -> None:
    image = cache_image()
    oci_layout.write(image, tmp_path / "a", REF)
    docker_archive.write(image, tmp_path / "b", REF)
    assert str(reference_to(tmp_path / "a")) == f"oci:{tmp_path}/a"
    assert str(reference_to(tmp_path / "b")) == f"docker-archive:{tmp_path}/b"


def test_the_image_that_mcv_published_is_pushed_described_and_pulled(site: Site, layout: Layout, work: Path) -> None:
    ref = Reference.parse(f"{site.real.host}/team/mcv:1")
    pinned = ref.pinned(push.image(site.client, ref, docker_archive.open_archive(MCV_ARCHIVE, work)))
    described = cache.describe(site.client, pinned)
    assert described.targets == (GpuTarget("hip", "gfx90a", 64),)
    made = pull.fetch(site.client, described, layout, max_bytes=1 << 20)
    assert made.size_bytes == 80415


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "no OCI layout and no docker-archive"),
        (b"x" * 1000, "no OCI layout and no docker-archive"),
        (gzip.compress(b"x" * 1000, mtime=0), "gunzip"),
        (b"\x7fELF" + bytes(1000), "no OCI layout and no docker-archive"),
    ],
)
def test_a_file_of_another_format_is_refused(tmp_path: Path, data: bytes, word: str) -> None:
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(GKMError, match=word) as caught:
        reference_to(tmp_path / "file")
    assert caught.value.reason is Reason.METADATA_INVALID


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(GKMError) as caught:
        reference_to(tmp_path / "nothing")
    assert caught.value.reason is Reason.NOT_FOUND
