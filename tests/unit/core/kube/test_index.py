"""An index that was fed with changes equals an index of the present objects."""

from collections.abc import Mapping
from threading import Thread
from typing import NamedTuple

from gkm.kube.index import Index
from hypothesis import given
from hypothesis import strategies as st
from support.host.steps import steps
from support.host.waiting import scaled


class Pod(NamedTuple):
    name: str
    node: str
    ready: bool = True


def by_node() -> Index[str, Pod]:
    return Index(lambda pod: (pod.node,), lambda pod: pod.name)


def test_objects_are_found_by_their_key() -> None:
    index = by_node()
    one, two, far = Pod("one", "near"), Pod("two", "near"), Pod("three", "far")
    for pod in (one, two, far):
        index.change(None, pod)
    assert set(index.get("near")) == {one, two}
    assert index.get("far") == (far,)
    assert index.get("nowhere") == ()
    assert (index.count("near"), index.count("nowhere")) == (2, 0)
    assert len(index.keys()) == 2


def test_a_changed_object_replaces_its_old_version_under_any_key() -> None:
    index = by_node()
    before, after, moved = Pod("one", "near", ready=False), Pod("one", "near"), Pod("one", "far")
    index.change(None, before)
    index.change(before, after)
    assert index.get("near") == (after,)
    index.change(after, moved)
    assert (index.get("near"), index.get("far")) == ((), (moved,))


def test_an_object_with_several_keys_is_found_by_each_and_leaves_all() -> None:
    index: Index[str, Pod] = Index(lambda pod: pod.node.split(), lambda pod: pod.name)
    both, neither = Pod("one", "near far"), Pod("two", "")
    index.change(None, both)
    index.change(None, neither)
    assert (index.get("near"), index.get("far"), len(index.keys())) == ((both,), (both,), 2)
    index.change(both, Pod("one", "far"))
    assert (index.get("near"), index.get("far"), len(index.keys())) == ((), (Pod("one", "far"),), 1)


def test_a_key_is_removed_with_its_last_object() -> None:
    index = by_node()
    one = Pod("one", "near")
    index.change(None, one)
    index.change(one, None)
    assert (len(index.keys()), index.get("near")) == (0, ())


def test_the_removal_of_an_unknown_object_changes_nothing() -> None:
    index = by_node()
    index.change(None, Pod("one", "near"))
    index.change(Pod("two", "near"), None)
    index.change(Pod("three", "far"), None)
    assert index.get("near") == (Pod("one", "near"),)


def test_a_change_costs_the_same_however_many_objects_its_key_has() -> None:
    def cost(others: int) -> int:
        index = by_node()
        for number in range(others):
            index.change(None, Pod(f"pod-{number}", "near"))
        one, changed = Pod("one", "near"), Pod("one", "near", ready=False)
        changes: list[tuple[Pod | None, Pod | None]] = [(None, one), (one, changed), (changed, None)]

        def change() -> None:
            for old, new in changes:
                index.change(old, new)

        return steps(change)

    assert 0 < cost(2000) <= cost(1)


pods = st.builds(Pod, name=st.sampled_from("abcd"), node=st.sampled_from(["", "n1", "n2"]), ready=st.booleans())
changes = st.lists(st.one_of(pods, st.sampled_from("abcd")), max_size=60)
"""A pod as it is from now on, or the name of one that goes."""


@given(changes)
def test_changes_add_up_to_the_existing_objects(history: list[Pod | str]) -> None:
    index = by_node()
    present: dict[str, Pod] = {}
    for change in history:
        name = change if isinstance(change, str) else change.name
        old, new = present.pop(name, None), None if isinstance(change, str) else change
        if new is not None:
            present[name] = new
        index.change(old, new)
        assert held(index) == counted(present)
        assert len(index.keys()) == len(counted(present))
        assert {node: index.count(node) for node in held(index)} == {n: len(pods) for n, pods in held(index).items()}


def held(index: Index[str, Pod]) -> Mapping[str, set[Pod]]:
    return {node: set(index.get(node)) for node in ("", "n1", "n2") if index.get(node)}


def counted(present: Mapping[str, Pod]) -> Mapping[str, set[Pod]]:
    return {node: {p for p in present.values() if p.node == node} for node in {p.node for p in present.values()}}


def test_several_threads_may_change_it() -> None:
    index = by_node()

    def fill(who: str) -> None:
        for number in range(200):
            pod = Pod(f"{who}-{number}", f"node-{number % 7}")
            index.change(None, pod)
            if number % 2:
                index.change(pod, None)

    threads = [Thread(target=fill, args=(who,)) for who in ("a", "b", "c", "d")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(scaled(60))
    found = [pod.name for number in range(7) for pod in index.get(f"node-{number}")]
    assert sorted(found) == sorted(f"{who}-{number}" for who in "abcd" for number in range(0, 200, 2))


def test_a_reader_gets_no_more_objects_than_it_wants() -> None:
    index: Index[str, int] = Index(lambda _value: ("all",), lambda value: value)
    for value in range(5):
        index.change(None, value)
    assert len(set(index.get("all", 3))) == 3
    assert set(index.get("all")) == set(range(5))
