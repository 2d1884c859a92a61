import hashlib
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.images.archives import member_names
from gkm.images.archives.compression import inflated
from gkm.images.assembly.tree import walk
from gkm.images.assembly.versions import DependencyVersions
from gkm.images.cache import Format
from gkm.images.local_image import LocalImage
from gkm.images.pulling import extract
from gkm.images.pulling.extract import Extraction
from support.images.archives import DATA, MCV_ARCHIVE, content, mcv_image
from support.images.builds import build

CACHE = DATA / "triton-cache"
KERNEL = {"hash": "h", "target": {"backend": "cuda", "arch": 90, "warp_size": 32}}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Create the smallest cache: a directory with one kernel."""
    directory = tmp_path / "cache"
    directory.mkdir()
    (directory / "k.json").write_text(json.dumps(KERNEL))
    (directory / "k.ttir").write_bytes(b"module {}")
    return directory


def extracted(image: LocalImage, directory: Path, kind: Format = Format.TRITON) -> Extraction:
    directory.mkdir()
    made = Extraction(directory, [kind], 1 << 30)
    made.layer([content(image.blobs[1])])
    return made


def refused(directory: Path, work: Path) -> GKMError:
    with pytest.raises(GKMError) as caught:
        build(directory, "x", work)
    return caught.value


def test_directories_that_no_node_would_extract_are_not_packed(
    cache: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extract, "SPARE_DIRECTORIES", 5)
    for number in range(6):
        (cache / f"empty-{number}").mkdir()
    error = refused(cache, work)
    assert error.reason is Reason.TOO_LARGE
    assert "6 directories for 0 files" in error.message


def files_in(directory: Path) -> dict[Path, bytes]:
    return {path.relative_to(directory): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_from_the_content_of_mcvs_image_its_manifest_is_made_byte_for_byte(tmp_path: Path, work: Path) -> None:
    theirs = extracted(mcv_image(), tmp_path / "theirs")
    ours = extracted(build(theirs.destination, "vector-add-cache", work), tmp_path / "ours")
    assert ours.manifest == theirs.manifest
    assert files_in(ours.destination) == files_in(theirs.destination)


def test_from_the_content_of_mcvs_image_its_labels_are_made_byte_for_byte(tmp_path: Path, work: Path) -> None:
    with tarfile.open(MCV_ARCHIVE) as archive:
        (listed,) = json.load(archive.extractfile("manifest.json") or BytesIO())
        theirs = json.load(archive.extractfile(listed["Config"]) or BytesIO())["config"]["Labels"]
    ours = build(extracted(mcv_image(), tmp_path / "theirs").destination, "vector-add-cache", work)
    assert ours.labels == theirs | {"org.opencontainers.image.title": "vector-add-cache"}
    assert json.loads(content(ours.blobs[0]))["config"]["Labels"] == ours.labels


def test_a_real_triton_cache_becomes_an_image_with_its_targets(work: Path) -> None:
    built = build(CACHE, "vector-add", work)
    summary = json.loads(built.labels["cache.triton.image/summary"])
    assert [target["arch"] for target in summary["targets"]] == ["100", "90"]
    assert built.labels["cache.triton.image/entry-count"] == "2"
    size = sum(len(data) for data in files_in(CACHE).values())
    assert built.labels["cache.triton.image/cache-size-bytes"] == str(size)


def test_the_same_files_give_the_same_digest_at_any_time_and_path(tmp_path: Path, work: Path) -> None:
    copy, other = tmp_path / "copy", tmp_path / "other"
    other.mkdir()
    for path, data in files_in(CACHE).items():
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        (copy / path).write_bytes(data)
        os.utime(copy / path, (1, 1))
    assert build(copy, "x", other).digest == build(CACHE, "x", work).digest


def test_an_extraction_of_a_built_image_gives_the_same_files(tmp_path: Path, work: Path) -> None:
    made = extracted(build(CACHE, "x", work), tmp_path / "out")
    assert files_in(made.destination) == files_in(CACHE)


def test_the_configuration_names_the_digest_of_the_unpacked_layer(work: Path) -> None:
    built = build(CACHE, "x", work)
    layer = b"".join(inflated([content(built.blobs[1])]))
    stated = json.loads(content(built.blobs[0]))["rootfs"]["diff_ids"]
    assert stated == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]


def test_entries_are_named_and_ordered_as_mcv_does(work: Path) -> None:
    layer = b"".join(inflated([content(build(CACHE, "x", work).blobs[1])]))
    with tarfile.open(fileobj=BytesIO(layer)) as archive:
        names = archive.getnames()
    assert names[-1] == "io.triton.manifest/manifest.json"
    assert all(name.startswith(("io.triton.cache/", "io.triton.manifest")) for name in names)
    assert names[:-2] == sorted(names[:-2], key=lambda name: name.split("/"))


def test_the_progress_callback_reports_every_byte(work: Path) -> None:
    reports: list[tuple[int, int]] = []
    built = build(CACHE, "x", work, report=lambda done, of: reports.append((done, of)))
    size = int(built.labels["cache.triton.image/cache-size-bytes"])
    assert reports[-1] == (size, size)
    assert [done for done, _ in reports] == sorted(done for done, _ in reports)


def test_stated_versions_go_into_mcvs_summary_or_into_labels_of_gkm(cache: Path, work: Path) -> None:
    versions = DependencyVersions.parse(["cuda=12.9", "ptx=84", "triton=3.5.1"])
    labels = build(cache, "x", work, versions=versions).labels
    assert labels["cache.triton.image/summary"] == (
        '{"targets":[{"backend":"cuda","arch":"90","warp_size":32,"ptx_version":84,"cuda_version":"12.9"}]}'
    )
    assert labels["gkm.io/dependency-version.triton"] == "3.5.1"


@pytest.mark.parametrize("name", ["notes.json", "k.cubin"])
def test_a_directory_without_kernels_is_refused(tmp_path: Path, work: Path, name: str) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / name).write_text("{}")
    assert refused(tmp_path / "cache", work).reason is Reason.METADATA_MISSING


def test_kernels_without_a_marker_file_of_triton_are_no_cache_for_mcv(cache: Path, work: Path) -> None:
    (cache / "k.ttir").rename(cache / "k.txt")
    assert refused(cache, work).reason is Reason.METADATA_MISSING


@pytest.mark.parametrize("place", [".git", "vendor", "a-vendor-directory"])
def test_marks_in_hidden_and_vendored_directories_do_not_count(cache: Path, work: Path, place: str) -> None:
    (cache / place).mkdir()
    (cache / "k.ttir").rename(cache / place / "k.ttir")
    assert refused(cache, work).reason is Reason.METADATA_MISSING


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\xff",
        b"[" * 100_000,
        b'{"hash":"h"}',
        b'{"hash":"","target":{"backend":"cuda","arch":90,"warp_size":32}}',
        b'{"hash":"h","target":{"backend":"../../etc","arch":90,"warp_size":32}}',
        b'{"hash":"h","target":{"backend":"cuda","arch":"9\\n0","warp_size":32}}',
        b'{"hash":"h","target":{"backend":"cuda","arch":90,"warp_size":0}}',
        b'{"hash":"h","num_warps":1e400,"target":{"backend":"cuda","arch":90,"warp_size":32}}',
        b'{"hash":"' + b"h" * 257 + b'","target":{"backend":"cuda","arch":90,"warp_size":32}}',
        b" " * ((4 << 20) + 1),
    ],
)
def test_metadata_that_describes_no_kernel_is_not_counted(cache: Path, work: Path, metadata: bytes) -> None:
    (cache / "other.json").write_bytes(metadata)
    assert build(cache, "x", work).labels["cache.triton.image/entry-count"] == "1"


def test_a_link_in_a_cache_is_refused(cache: Path, work: Path) -> None:
    (cache / "link").symlink_to("/etc/passwd")
    assert refused(cache, work).reason is Reason.UNSAFE_CONTENT


def test_a_link_instead_of_a_directory_is_refused(cache: Path, work: Path) -> None:
    (cache / "link").symlink_to("/etc")
    assert refused(cache, work).reason is Reason.UNSAFE_CONTENT


def test_a_pipe_in_a_cache_is_refused_without_blocking(cache: Path, work: Path) -> None:
    os.mkfifo(cache / "k2.json")
    assert refused(cache, work).reason is Reason.UNSAFE_CONTENT


@pytest.mark.parametrize("name", [b"a\nb", b"\xff", b".wh.k.json", b"a\x1b[2J"])
def test_a_name_that_no_node_would_extract_is_refused_when_it_is_built(cache: Path, work: Path, name: bytes) -> None:
    Path(os.fsdecode(os.fsencode(cache) + b"/" + name)).touch()
    assert refused(cache, work).reason is Reason.UNSAFE_CONTENT


def test_more_directories_than_a_node_would_make_are_refused(cache: Path, work: Path) -> None:
    (cache / "/".join("d" * (member_names.MAX_DEPTH + 1))).mkdir(parents=True)
    assert refused(cache, work).reason is Reason.UNSAFE_CONTENT


def read_after(cache: Path, change: Callable[[Path], None]) -> None:
    """Change a file between its listing and its reading."""
    for entry in walk(cache):
        if entry.name == "k.ttir":
            change(cache / "k.ttir")
            entry.read()


@pytest.mark.parametrize("change", [b"", b"module", b"module {} // longer"])
def test_a_file_that_changes_its_size_while_it_is_read_is_an_error(cache: Path, change: bytes) -> None:
    def rewrite(path: Path) -> None:
        path.write_bytes(change)

    with pytest.raises(GKMError) as caught:
        read_after(cache, rewrite)
    assert caught.value.reason is Reason.CONTENT_MISMATCH


def test_a_file_that_becomes_a_link_while_it_is_read_is_not_followed(cache: Path) -> None:
    def replace(path: Path) -> None:
        path.unlink()
        path.symlink_to("/etc/passwd")

    with pytest.raises(OSError, match="symbolic links"):
        read_after(cache, replace)


def test_a_cache_that_grows_between_scan_and_packing_is_an_error(cache: Path, work: Path) -> None:
    (cache / "z").mkdir()

    def grow(_done: int, _of: int) -> None:
        (cache / "z" / "new.cubin").write_bytes(b"new")

    with pytest.raises(GKMError) as caught:
        build(cache, "x", work, report=grow)
    assert caught.value.reason is Reason.CONTENT_MISMATCH


def test_a_cache_of_a_hundred_megabytes_is_packed_in_little_memory(cache: Path, work: Path) -> None:
    for number in range(100):
        (cache / f"{number}.cubin").write_bytes(os.urandom(1 << 20))
    program = (
        "import sys; from pathlib import Path; from gkm.images.assembly.contents import scan_directory;"
        "from gkm.images.assembly.image import pack; from gkm.images.assembly.selection import EVERYTHING;"
        "from gkm.images.assembly.versions import DependencyVersions as Versions;"
        "contents = scan_directory(Path(sys.argv[1]), (), Versions(), EVERYTHING);"
        "pack([contents], 'x', Path(sys.argv[2]), versions=Versions());"
        "print(Path('/proc/self/status').read_text())"
    )
    arguments = [sys.executable, "-c", program, str(cache), str(work)]
    status = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout
    (peak,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    assert int(peak) < 64 << 10  # KiB
