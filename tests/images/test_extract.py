import stat
import tarfile
from pathlib import Path

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.images.cache import Format
from gkm.images.extract import MAX_DEPTH, Extraction, checked_path
from hypothesis import given
from hypothesis import strategies as st
from images_archives import file, tree


def extraction(directory: Path, max_bytes: int = 1 << 20) -> Extraction:
    directory.mkdir()
    return Extraction(directory, Format.TRITON, max_bytes)


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
        [tree(file("io.triton.cache/lib.so", b"", mode=0o4777), file("io.triton.cache/k.json", b"", mode=0o666))]
    )
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in made.destination.iterdir()}
    assert modes == {"lib.so": 0o555, "k.json": 0o444}


def test_every_file_is_listed_with_its_hash(tmp_path: Path) -> None:
    made = extraction(tmp_path / "cache")
    made.layer([tree(("io.triton.cache/a", b""))])
    # sha256 of nothing, FIPS 180-4
    assert made.files[0].sha256 == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


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
    ],
)
def test_two_things_of_one_name_are_refused(tmp_path: Path, names: tuple[str, str]) -> None:
    members = [
        file(f"io.triton.cache/{name}", b"", kind=tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE)
        for name in names
    ]
    with pytest.raises(GKMError, match="twice") as caught:
        extraction(tmp_path / "cache").layer([tree(*members)])
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
    with pytest.raises(OSError, match="exists"):
        made.layer([tree(("io.triton.cache/a", b"theirs"))])
    assert (tmp_path / "victim").read_text() == "mine"


def test_more_bytes_than_allowed_are_refused_before_they_are_written(tmp_path: Path) -> None:
    made = extraction(tmp_path / "cache", max_bytes=10)
    with pytest.raises(GKMError) as caught:
        made.layer([tree(("io.triton.cache/a", b"x" * 11))])
    assert caught.value.reason is Reason.TOO_LARGE
    assert not list(made.destination.iterdir())
