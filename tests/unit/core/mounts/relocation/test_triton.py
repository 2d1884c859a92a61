"""Group files of Triton: names of existing files are used, paths never."""

import json
from pathlib import Path

import pytest
from gkm.mounts.relocation.triton import MAX_BYTES, MAX_CHILDREN, MISS, rewritten
from hypothesis import given
from hypothesis import strategies as st

HERE = {"add.json", "add.cubin", "add.ptx"}
DATA = Path(__file__).resolve().parents[4] / "data" / "triton-cache"


def group(children: object) -> bytes:
    return json.dumps({"child_paths": children}).encode()


def children_of(data: bytes) -> dict[str, str] | None:
    """Return the children as Triton 3.9 reads them (get_group), before it checks that the files exist."""
    found = json.loads(data).get("child_paths")
    return None if found is None else dict(found)


def test_the_paths_are_those_of_the_new_directory() -> None:
    result = rewritten(group({"add.json": "/build/K/add.json", "add.cubin": "/build/K/add.cubin"}), "/cache/K", HERE)
    assert children_of(result.data) == {"add.json": "/cache/K/add.json", "add.cubin": "/cache/K/add.cubin"}
    assert result.complete


def test_the_order_is_preserved_because_triton_takes_the_first_json() -> None:
    data = group({"b.json": "", "a.json": "", "a.cubin": ""})
    result = rewritten(data, "/c", {"a.json", "b.json", "a.cubin"})
    assert list(children_of(result.data) or ()) == ["b.json", "a.json", "a.cubin"]


def test_names_without_paths_as_a_remote_cache_writes_them_become_paths() -> None:
    result = rewritten(group(["add.cubin", "add.json"]), "/c", HERE)
    assert children_of(result.data) == {"add.cubin": "/c/add.cubin", "add.json": "/c/add.json"}


def test_the_text_is_ascii_for_containers_without_a_locale() -> None:
    result = rewritten(group({"add.json": ""}), "/ü", HERE)
    assert result.data.isascii()
    assert children_of(result.data) == {"add.json": "/ü/add.json"}


@pytest.mark.parametrize(
    "name",
    [
        "missing.cubin",
        "",
        ".",
        "..",
        "../K2/add.cubin",
        "/etc/passwd",
        "sub/add.cubin",
        "./add.cubin",
        "add.cubin\0",
        "add.cubin/",
        "ADD.CUBIN",
        "add.cubin ",
        "__grp__add.json",
        "x" * 300,
    ],
)
def test_one_missing_child_makes_the_whole_group_a_miss(name: str) -> None:
    data = group({"add.json": "/build/K/add.json", name: "/etc/passwd"})
    result = rewritten(data, "/cache/K", HERE | {"__grp__add.json"})
    assert result.data == MISS
    assert not result.complete


@pytest.mark.parametrize("name", ["a\x1b", "\udcff", "a\nb", "\u202e"])
def test_a_name_that_cannot_be_printed_makes_a_miss_although_the_file_is_there(name: str) -> None:
    assert rewritten(group({name: "x"}), "/c", {name}).data == MISS


def test_an_unusable_path_makes_a_miss() -> None:
    assert rewritten(group({"add.json": ""}), "/" + "x" * 4085, HERE).complete
    assert rewritten(group({"add.json": ""}), "/" + "x" * 4086, HERE).data == MISS


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[]",
        b"1e999",
        b"{",
        b"{}",
        b'{"child_paths": null}',
        b'{"child_paths": "add.json"}',
        b'{"child_paths": 1}',
        b'{"child_paths": {}}',
        b'{"child_paths": []}',
        b'{"child_paths": [["add.json"]]}',
        b'{"child_paths": [null]}',
        b'{"child_paths": {"add.json": 1}} trailing',
        b"[" * 60_000,
        b'{"a":' * 10_000,
        b"9" * 5_000,
        b'{"child_paths": {"add.json": ""}}' + b" " * MAX_BYTES,
        group({f"f{number}": "" for number in range(MAX_CHILDREN + 1)}),
    ],
    ids=lambda data: repr(data[:24]),
)
def test_an_invalid_group_file_is_a_miss(data: bytes) -> None:
    assert rewritten(data, "/c", HERE | {f"f{number}" for number in range(MAX_CHILDREN + 1)}).data == MISS


def test_the_last_of_two_equal_keys_counts_as_for_triton() -> None:
    data = b'{"child_paths": {"evil": "/etc/passwd"}, "child_paths": {"add.json": "/a", "add.json": "/etc/shadow"}}'
    assert children_of(rewritten(data, "/c", HERE).data) == {"add.json": "/c/add.json"}


@pytest.mark.parametrize("path", sorted(DATA.glob("*/__grp__*")), ids=lambda path: path.parent.name[:8])
def test_a_group_file_of_real_triton_is_complete(path: Path) -> None:
    result = rewritten(path.read_bytes(), "/cache/K", {file.name for file in path.parent.iterdir()})
    assert result.complete
    assert len(children_of(result.data) or ()) == 7


NAMES = st.sampled_from([*sorted(HERE), "..", "/etc/passwd", "../x", "", "gone"]) | st.text(max_size=9)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | NAMES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


@given(JSON | st.dictionaries(st.just("child_paths"), JSON), st.sets(NAMES))
def test_whatever_is_in_it_every_path_that_comes_out_lies_in_the_directory(value: object, beside: set[str]) -> None:
    result = rewritten(json.dumps(value).encode(), "/cache/K", HERE)
    children = children_of(result.data)
    assert (children is None) == (result.data == MISS) == (not result.complete)
    for name, path in (children or {}).items():
        assert name in HERE
        assert path == f"/cache/K/{name}"
    assert rewritten(json.dumps(value).encode(), "/cache/K", beside - HERE - {""}).data.isascii()


@given(st.binary(max_size=200))
def test_any_bytes_are_a_group_or_a_miss(data: bytes) -> None:
    json.loads(rewritten(data, "/c", HERE).data)
