"""vLLM's index of compiled graphs, parsed as vLLM does."""

import ast
import pprint
from typing import Any

import pytest
from gkm.mounts.relocation.literal import MAX_NESTING
from gkm.mounts.relocation.vllm import MAX_BYTES, MISS, rewritten
from hypothesis import given
from hypothesis import strategies as st

HERE = {"artifact_compile_range_1_8192_subgraph_0", "artifact_compile_range_1_8192_subgraph_2"}
FIRST = "artifact_compile_range_1_8192_subgraph_0"
OLD = "/root/.cache/vllm/torch_compile_cache/0123456789/rank_0_0/backbone"
NEW = "/cache/torch_compile_cache/0123456789/rank_0_0/backbone"


def index(graphs: object) -> bytes:
    """As CompilerManager.save_to_file writes it."""
    return pprint.PrettyPrinter(indent=4).pformat(graphs).encode()


def handles(data: bytes) -> dict[Any, Any]:
    """As CompilerManager.initialize_cache reads it: fails on keys of another form."""
    found: dict[Any, Any] = {}
    for (compile_range, graph, compiler), value in ast.literal_eval(data.decode("ascii")).items():
        assert isinstance(graph, int)
        assert isinstance(compiler, str)
        found[compile_range, graph, compiler] = value
    return found


def graph(number: int, artifact: str = FIRST, compiler: str = "inductor_standalone") -> dict[object, object]:
    return {((1, 8192), number, compiler): (artifact, f"{OLD}/{artifact}")}


def test_the_paths_are_those_of_the_new_directory() -> None:
    result = rewritten(index(graph(0)), NEW, HERE)
    assert handles(result.data) == {((1, 8192), 0, "inductor_standalone"): (FIRST, f"{NEW}/{FIRST}")}
    assert result.complete


def test_newer_versions_wrap_the_handle_in_a_mapping() -> None:
    ((key, handle),) = graph(0).items()
    result = rewritten(index({key: {"graph_handle": handle, "cache_key": "abc"}}), NEW, HERE)
    assert handles(result.data) == {key: {"graph_handle": (FIRST, f"{NEW}/{FIRST}"), "cache_key": "abc"}}


def test_an_index_whose_paths_take_too_much_memory_is_a_miss() -> None:
    """An index of 1 MiB took 200 MiB in a deep directory: the CSI driver has 192 MiB."""
    data = b"{%b}" % b"".join(b"(None, %d, 'c'): ('x', '')," % number for number in range(5_000))
    result = rewritten(data, "/" + "d" * 2000, {"x"})
    assert (len(result.data), result.complete) == (len(MISS), False)


def test_the_index_of_a_large_model_is_rewritten_whole() -> None:
    # 17 sizes of a batch, 62 parts of the model: 1,054 graphs. A bound of 256 KiB made an empty index of it.
    sizes, parts = [(1, 8192), *((size, size) for size in (1, 2, 4, *range(8, 112, 8)))], range(62)
    names = {
        (size, part): f"artifact_compile_range_{size[0]}_{size[1]}_subgraph_{part}" for size in sizes for part in parts
    }
    graphs = {
        (size, part, "inductor_standalone"): {"graph_handle": (name, f"{OLD}/{name}"), "cache_key": "c" * 64}
        for (size, part), name in names.items()
    }
    data = index(graphs)
    result = rewritten(data, NEW, set(names.values()))
    assert len(data) > 256 << 10
    assert result.complete
    found = handles(result.data)
    assert found.keys() == graphs.keys()
    assert all(value["graph_handle"][1] == f"{NEW}/{value['graph_handle'][0]}" for value in found.values())


def test_older_versions_have_no_range() -> None:
    data = index({(None, 0, "inductor_standalone"): (FIRST, f"{OLD}/{FIRST}")})
    assert handles(rewritten(data, NEW, HERE).data)[None, 0, "inductor_standalone"] == (FIRST, f"{NEW}/{FIRST}")


def test_a_hash_handle_stays_without_its_path() -> None:
    result = rewritten(index(graph(0, "fabc", "inductor")), NEW, set())
    assert handles(result.data) == {((1, 8192), 0, "inductor"): ("fabc", "")}


def test_long_paths_with_spaces_survive_pprint() -> None:
    spaced = "artifact of a range " * 8
    result = rewritten(index(graph(0, spaced)), NEW, {spaced})
    assert handles(result.data)[(1, 8192), 0, "inductor_standalone"] == (spaced, f"{NEW}/{spaced}")


def test_a_graph_with_a_missing_artifact_is_left_out() -> None:
    result = rewritten(index({**graph(0), **graph(1, "artifact_gone")}), NEW, HERE)
    assert [key[1] for key in handles(result.data)] == [0]
    assert not result.complete


@pytest.mark.parametrize("artifact", ["", "..", "/etc/passwd", f"../backbone/{FIRST}", f"{FIRST}/", "vllm"])
def test_a_name_that_does_not_lie_there_is_never_a_path(artifact: str) -> None:
    assert rewritten(index(graph(0, artifact)), NEW, HERE).data == MISS


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"None",
        b"\xff",
        b"\0",
        b"{",
        b"}",
        b"__import__('os').system('true')",
        b"{(1, 0, 'c'): ('a', 'b')} # comment",
        b"{(1, 0, 'c'): (b'a', 'b')}",
        b"{(1, 0, 'c'): (f'{x}', 'b')}",
        b"{(1, 0, 'c'): ('\\x2f', 'b')}",
        b"{[]: 1}",
        b"{(1, -0, 'c'): ('a', 'b')}",
        b"-" * 100_000 + b"1",
        b"not " * 50_000 + b"1",
        b"1+" * 100_000 + b"1",
        b"(" * (MAX_NESTING + 1) + b")" * (MAX_NESTING + 1),
        b"(" * 100_000,
        b"1" * 19,
        b"'" * 99_999,
        b"'a' " * 100_000,
        b"{(1, 0): ('a', 'b')}",
        b"{('1', '0', 'c'): ('a', 'b')}",
        b"{('1', 0, 'c'): ('a', 'b')}",
        b"{((1, 2, 3), 0, 'c'): ('a', 'b')}",
        b"{(1, 0, 'c'): 'a'}",
        b"{(1, 0, 'c'): ('a', 'b', 'c')}",
        b"{(1, 0, 'c'): {'cache_key': 'a'}}",
        b"{(1, 0, 'c'): ('a', 'b')}" + b" " * MAX_BYTES,
    ],
    ids=lambda data: repr(data[:24]),
)
def test_an_invalid_index_has_no_graphs(data: bytes) -> None:
    assert rewritten(data, NEW, {"a", "b", FIRST}).data == MISS


def test_nested_mappings_are_bounded() -> None:
    nested: object = (FIRST, "")
    for _ in range(MAX_NESTING - 3):
        nested = {"graph_handle": nested}
    assert rewritten(ascii({(1, 0, "c"): nested}).encode(), NEW, HERE).complete


@given(st.binary(max_size=200) | st.text("{}()[],:'\"\\01ab \nNone", max_size=60).map(str.encode))
def test_any_bytes_are_an_index_or_a_miss(data: bytes) -> None:
    for value in handles(rewritten(data, NEW, HERE).data).values():
        assert FIRST in repr(value)


LEAVES = st.none() | st.booleans() | st.integers(0, 99) | st.sampled_from([FIRST, "inductor", "..", "/etc/passwd"])
LITERALS = st.recursive(LEAVES, lambda inner: st.tuples(inner, inner) | st.dictionaries(LEAVES, inner), max_leaves=9)


@given(st.dictionaries(st.tuples(LEAVES, LEAVES, LEAVES), LITERALS))
def test_whatever_is_in_it_every_path_that_comes_out_lies_in_the_directory(graphs: dict[object, object]) -> None:
    for (_, _, compiler), value in handles(rewritten(index(graphs), NEW, HERE).data).items():
        handle = value
        while isinstance(handle, dict):
            handle = handle["graph_handle"]
        assert handle == (FIRST, f"{NEW}/{FIRST}") or (compiler == "inductor" and handle[1] == "")
