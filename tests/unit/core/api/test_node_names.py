import re

import pytest
from gkm.api.node_names import NamesUnreadable, fold, fold_sorted, unfold
from hypothesis import given
from hypothesis import strategies as st

NAMES = st.from_regex(r"[a-c]{0,2}-?[0-9]{0,3}(\.x[0-9])?z?", fullmatch=True).filter(
    lambda name: bool(name) and name[0] not in ".-" and name[-1] not in ".-"
)
LISTS = st.lists(NAMES | st.integers(0, 12).map("n{}".format) | st.integers(8, 12).map("n{:02}".format), max_size=60)


@given(LISTS)
def test_unfolding_returns_the_folded_names(names: list[str]) -> None:
    assert list(unfold(fold(names))) == names if names else fold(names) == ""


def test_numbered_nodes_become_ranges() -> None:
    assert fold([f"gpu-{number:03}" for number in (1, 2, 3, 4, 7, 8, 20)]) == "gpu-[001-004,007-008,020]"
    assert fold(["n9", "n10", "n11"]) == "n[9-11]"
    assert fold(["n09", "n9", "n10"]) == "n[09,9-10]"
    assert fold(["ip-1-17.example.internal", "ip-1-18.example.internal"]) == "ip-1-[17-18].example.internal"
    assert fold(["gpu-7", "head"]) == "gpu-7,head"


def test_a_repeated_name_is_written_once() -> None:
    assert fold(["n1", "n1", "n2", "n2", "n3"]) == "n[1-2]*2,n3"
    assert fold(["head", "head", "head"]) == "head*3"


def test_ten_thousand_numbered_nodes_fit_on_a_line() -> None:
    assert fold([f"node-{number:06}" for number in range(10_000)]) == "node-[000000-009999]"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no names of nodes at ''"),
        (",", "no names of nodes at ','"),
        ("a,,b", "no names of nodes at ',b'"),
        ("a[", "no names of nodes at 'a['"),
        ("a[]", "no names of nodes at 'a[]'"),
        ("a[1-", "no names of nodes at 'a[1-'"),
        ("a[2-1]", "the range 2-1 has 0 names"),
        ("a[0-999999999]", "the range 0-999999999 has 1000000000 names"),
        ("A", "no names of nodes at 'A'"),
        ("a b", "no names of nodes at 'a b'"),
        ("a[1][2]", "no names of nodes at 'a[1][2]'"),
        ("a]", "no names of nodes at 'a]'"),
        ("a[1-2-3]", "no range of numbers: '1-2-3'"),
        ("x,", "no names of nodes at ''"),
    ],
)
def test_a_text_that_is_not_a_list_is_refused(text: str, problem: str) -> None:
    with pytest.raises(NamesUnreadable, match=re.escape(problem)):
        unfold(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a*0", "no names of nodes at 'a*0'"),
        ("a*", "no names of nodes at 'a*'"),
        ("a*-1", "no names of nodes at 'a*-1'"),
        ("*2", "no names of nodes at '*2'"),
        ("a*2*2", "no names of nodes at 'a*2*2'"),
        ("a*9999999", "more than 1000000 names"),
        ("a[1-1000]*9999", "the range 1-1000 has 1000 names: 1 to 100 are possible here"),
        ("a*b", "no names of nodes at 'a*b'"),
    ],
)
def test_a_text_with_an_invalid_repetition_is_refused(text: str, problem: str) -> None:
    with pytest.raises(NamesUnreadable, match=re.escape(problem)):
        unfold(text)


def test_an_invalid_node_name_is_not_folded() -> None:
    with pytest.raises(ValueError, match="no name of a node"):
        fold(["a,b"])


@pytest.mark.parametrize("text", ["n[1-4]", "n*4", "a,b,n[1-2]", "a,b,c,d"])
def test_unfolding_stops_at_the_limit_of_names(text: str) -> None:
    assert len(unfold(text, 4)) == 4
    with pytest.raises(NamesUnreadable, match=r"more than 3 names|the range .* has [24] names: 1 to [13] "):
        unfold(text, 3)


def test_names_of_nodes_are_in_the_order_of_their_numbers() -> None:
    assert fold_sorted(["gpu-10", "gpu-9", "gpu-8", "head", "gpu-9"]) == "gpu-[8-10],head"
    assert fold_sorted([]) == ""
