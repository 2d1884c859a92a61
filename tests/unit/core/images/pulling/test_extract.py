import stat
import tarfile
import time
from pathlib import Path

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.images.archives.member_names import MAX_DEPTH, checked_path
from gkm.images.cache import Format
from gkm.images.pulling import extract
from gkm.images.pulling.extract import GRACE_SECONDS, MIN_BYTES_PER_SECOND, Extraction, check_duration
from hypothesis import given
from hypothesis import strategies as st
from support.images.archives import file, tree


def extraction(directory: Path, max_bytes: int = 1 << 20) -> Extraction:
    directory.mkdir()
    return Extraction(directory, [Format.TRITON], max_bytes)


def test_the_cache_is_extracted_without_its_prefix_and_the_rest_is_passed_over(tmp_path: Path) -> None:
    made = extraction(tmp_path / "cache")
    made.layer(
        [tree(("io.triton.cache/K/a.cubin", b"abc"), ("io.triton.manifest/manifest.json", b"{}"), ("etc/x", b""))]
    )
    assert [path.relative_to(made.destination).as_posix() for path in made.destination.rglob("*")] == ["K", "K/a.cubin"]
    assert (made.destination / "K/a.cubin").read_bytes() == b"abc"
    assert made.manifest == b"{}"
    assert made.size_bytes == 3


def test_a_leading_dot_slash_means_the_same_name(tmp_path: Path) -> None:
    made = extraction(tmp_path / "cache")
    made.layer([tree(("./io.triton.cache/a", b"1"))])
    assert (made.destination / "a").read_bytes() == b"1"


def test_files_have_no_write_bits_and_keep_only_the_executable_bit(tmp_path: Path) -> None:
    made = extraction(tmp_path / "cache")
    made.layer(
        [tree(file("io.triton.cache/lib.so", b"", mode=0o1777), file("io.triton.cache/k.json", b"", mode=0o666))]
    )
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in made.destination.iterdir()}
    assert modes == {"lib.so": 0o555, "k.json": 0o444}


def test_every_file_is_listed_with_its_hash(tmp_path: Path) -> None:
    made = extraction(tmp_path / "cache")
    made.layer([tree(("io.triton.cache/a", b""))])
    # sha256 of nothing, FIPS 180-4
    (listed,) = made.files
    assert listed.sha256 == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize(
    "name",
    [
        b"../x",
        b"io.triton.cache/../../x",
        b"io.triton.cache/..",
        b"/etc/passwd",
        b"//etc/passwd",
        b"io.triton.cache//x",
        b"",
        b"io.triton.cache/a\nb",
        b"io.triton.cache/a\x1b[31m",
        b"io.triton.cache/\xff\xfe",
        b"io.triton.cache/" + b"n" * 256,
        b"io.triton.cache/" + b"p/" * 600 + b"x",
        b"io.triton.cache/" + b"d/" * MAX_DEPTH + b"x",
        b"io.triton.cache/.wh.a",
        b"io.triton.cache/.wh..wh..opq",
        "io.triton.cache/a\u202eb".encode(),
    ],
)
def test_a_name_that_could_lead_out_hide_or_confuse_is_refused(name: bytes) -> None:
    with pytest.raises(GKMError) as caught:
        checked_path(name)
    assert caught.value.reason is Reason.UNSAFE_CONTENT
    assert "\x1b" not in caught.value.message
    assert "\n" not in caught.value.message


@given(st.binary(max_size=300))
def test_a_name_that_is_accepted_stays_below_its_directory(name: bytes) -> None:
    try:
        path = checked_path(name)
    except GKMError:
        return
    assert not path.startswith("/")
    assert ".." not in path.split("/")


@pytest.mark.parametrize(
    "names",
    [
        ("a", "a"),
        ("a", "a/b"),
        ("a/b", "a"),
        ("a/", "a"),
        ("a", "a/"),
        ("a/b/c", "a/b"),
    ],
)
def test_two_members_with_one_name_are_refused(tmp_path: Path, names: tuple[str, str]) -> None:
    members = [
        file(f"io.triton.cache/{name}", b"", kind=tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE)
        for name in names
    ]
    with pytest.raises(GKMError, match="twice") as caught:
        extraction(tmp_path / "cache").layer([tree(*members)])
    assert caught.value.reason is Reason.UNSAFE_CONTENT


def test_a_directory_that_became_a_file_meanwhile_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = extraction(tmp_path / "cache")
    monkeypatch.setattr(Extraction, "_is_made", lambda *_: False)
    (made.destination / "a").write_bytes(b"")
    with pytest.raises(GKMError, match="twice") as caught:
        made.layer([tree(file("io.triton.cache/a/", b"", kind=tarfile.DIRTYPE))])
    assert caught.value.reason is Reason.UNSAFE_CONTENT


def test_a_second_layer_cannot_replace_a_file_of_the_first(tmp_path: Path) -> None:
    made = extraction(tmp_path / "cache")
    made.layer([tree(("io.triton.cache/a", b"1"))])
    with pytest.raises(GKMError, match="twice"):
        made.layer([tree(("io.triton.cache/a", b"2"))])
    assert (made.destination / "a").read_bytes() == b"1"


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    made = extraction(tmp_path / "cache")
    (tmp_path / "victim").write_text("mine")
    (made.destination / "a").symlink_to(tmp_path / "victim")
    with pytest.raises(GKMError, match="twice"):
        made.layer([tree(("io.triton.cache/a", b"theirs"))])
    assert (tmp_path / "victim").read_text() == "mine"


def test_directories_may_all_be_named_before_the_files(tmp_path: Path) -> None:
    # 2,000 kernels: the directories of a real cache of 1 GB, in the order of an archive that sorts them to the front.
    made = extraction(tmp_path / "cache")
    names = [f"io.triton.cache/{number:052}" for number in range(2000)]
    first = [file(f"{name}/", b"", kind=tarfile.DIRTYPE) for name in names]
    made.layer([tree(*first, *((f"{name}/k.cubin", b"x") for name in names))])
    assert len(made.files) == 2000


@pytest.mark.parametrize(("directories", "files"), [(7, 2), (8, 3), (10, 90)])
def test_files_justify_directories(monkeypatch: pytest.MonkeyPatch, directories: int, files: int) -> None:
    monkeypatch.setattr(extract, "SPARE_DIRECTORIES", 5)
    monkeypatch.setattr(extract, "MAX_DIRECTORIES", 10)
    extract.check_directories(directories, files)
    with pytest.raises(GKMError, match=f"has {directories + 1} directories for {files} files") as caught:
        extract.check_directories(directories + 1, files)
    assert caught.value.reason is Reason.TOO_LARGE


def test_directories_that_files_imply_are_counted_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extract, "SPARE_DIRECTORIES", 5)
    made = extraction(tmp_path / "cache")
    with pytest.raises(GKMError, match="6 directories for 0 files"):
        made.layer([tree(("io.triton.cache/a/b/c/d/e/f/g", b"1"))])


def test_a_directory_may_be_named_again(tmp_path: Path) -> None:
    made = extraction(tmp_path / "cache")
    directory = file("io.triton.cache/d/", b"", kind=tarfile.DIRTYPE, mode=0o2755)
    made.layer([tree(directory, ("io.triton.cache/d/a", b"1"), directory)])
    made.layer([tree(directory, ("io.triton.cache/d/b", b"2"))])
    assert sorted(path.name for path in (made.destination / "d").iterdir()) == ["a", "b"]


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o6644])
def test_a_file_that_changes_who_runs_it_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(GKMError, match="setuid or setgid") as caught:
        extraction(tmp_path / "cache").layer([tree(file("io.triton.cache/a", b"", mode=mode))])
    assert caught.value.reason is Reason.UNSAFE_CONTENT


def test_a_file_instead_of_the_cache_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GKMError, match=r"a file where io\.triton\.cache/ must be"):
        extraction(tmp_path / "cache").layer([tree(("io.triton.cache", b"x"), ("io.triton.cache/a", b"1"))])


MANIFEST = "io.triton.manifest/manifest.json"


def test_a_second_description_of_the_entries_in_a_layer_is_refused(tmp_path: Path) -> None:
    made = extraction(tmp_path / "cache")
    with pytest.raises(GKMError, match="twice"):
        made.layer([tree((MANIFEST, b"{}"), (MANIFEST, b"[]"))])


def test_a_later_layer_adds_files_and_describes_all(tmp_path: Path) -> None:
    made = extraction(tmp_path / "cache")
    made.layer([tree(("io.triton.cache/K/a", b"1"), (MANIFEST, b"{}"))])
    made.layer([tree(("io.triton.cache/L/b", b"2"), (MANIFEST, b"[]"))])
    assert made.manifest == b"[]"
    assert {path.name: path.read_bytes() for path in made.destination.rglob("[ab]")} == {"a": b"1", "b": b"2"}


@pytest.mark.parametrize("name", ["io.triton.cache/K/a", "io.triton.cache/K", "io.triton.cache/K/a/b"])
def test_a_later_layer_replaces_no_file(tmp_path: Path, name: str) -> None:
    made = extraction(tmp_path / "cache")
    made.layer([tree(("io.triton.cache/K/a", b"1"))])
    with pytest.raises(GKMError, match="twice") as caught:
        made.layer([tree((name, b"2"))])
    assert caught.value.reason is Reason.UNSAFE_CONTENT
    assert (made.destination / "K" / "a").read_bytes() == b"1"


def test_entries_outside_the_cache_are_counted_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extract, "MAX_MEMBERS", 5)
    made = extraction(tmp_path / "cache")
    made.layer([tree(*[(f"elsewhere/{number}", b"") for number in range(5)])])
    with pytest.raises(GKMError, match="more than 5 entries") as caught:
        made.layer([tree(("elsewhere/6", b""))])
    assert caught.value.reason is Reason.TOO_LARGE


def test_bytes_outside_the_cache_are_counted_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extract, "OVERHEAD_BYTES", 20_000)
    made = extraction(tmp_path / "cache", max_bytes=10_000)
    made.layer([tree(("elsewhere/1", bytes(9_000)))])
    with pytest.raises(GKMError, match="unpacks to more than 30000 bytes") as caught:
        made.layer([tree(("elsewhere/2", bytes(20_000)))])
    assert caught.value.reason is Reason.TOO_LARGE


def test_an_extraction_without_progress_is_ended(tmp_path: Path) -> None:
    made = extraction(tmp_path / "cache")
    made.started -= 3600
    with pytest.raises(GKMError, match="takes too long") as caught:
        made.layer([tree(("io.triton.cache/a", b"x"))])
    assert caught.value.transient


def test_an_extraction_with_progress_may_take_long() -> None:
    started = time.monotonic() - (GRACE_SECONDS + 90 + 40)
    check_duration(started, 400 * MIN_BYTES_PER_SECOND // 4, 2000)
    with pytest.raises(GKMError, match=f"{100 * MIN_BYTES_PER_SECOND} bytes in 2000 files"):
        check_duration(started - 10, 100 * MIN_BYTES_PER_SECOND, 2000)


def test_more_bytes_than_allowed_are_refused_before_they_are_written(tmp_path: Path) -> None:
    made = extraction(tmp_path / "cache", max_bytes=10)
    with pytest.raises(GKMError) as caught:
        made.layer([tree(("io.triton.cache/a", b"x" * 11))])
    assert caught.value.reason is Reason.TOO_LARGE
    assert not list(made.destination.iterdir())


def test_more_than_the_image_claims_is_refused_before_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    made = Extraction(tmp_path / "cache", [Format.TRITON], 1 << 20, claimed_bytes=10)
    with pytest.raises(GKMError, match="claims a cache of 10 bytes, it has at least 13") as caught:
        made.layer([tree(("io.triton.cache/a", b"x" * 8), ("io.triton.cache/b", b"x" * 5))])
    assert caught.value.reason is Reason.CONTENT_MISMATCH
    assert not (made.destination / "b").exists()


def test_disk_blocks_are_reserved_before_they_are_written(tmp_path: Path) -> None:
    taken: list[tuple[int, int]] = []
    (tmp_path / "cache").mkdir()
    made = Extraction(
        tmp_path / "cache", [Format.TRITON], 1 << 20, reserve=lambda content, disk: taken.append((content, disk))
    )
    made.layer([tree(("io.triton.cache/d/a", b"x" * 5000), ("io.triton.cache/b", b""))])
    # A directory, a file of two blocks, and an empty one.
    assert (sum(content for content, _ in taken), sum(disk for _, disk in taken)) == (5000, 4 * 4096)
