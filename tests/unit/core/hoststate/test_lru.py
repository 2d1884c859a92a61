"""The bounded map against a model: a list of pairs in the order of their use."""

from threading import Barrier, Thread

import pytest
from gkm.hoststate.lru import LRUCache
from hypothesis import given
from hypothesis import strategies as st
from support.host.waiting import scaled

KEYS = st.integers(0, 5)
STEPS = st.lists(st.tuples(st.sampled_from(("get", "put", "remove", "create")), KEYS))


@given(STEPS, st.integers(1, 4))
def test_it_holds_the_keys_that_were_used_most_recently(steps: list[tuple[str, int]], limit: int) -> None:
    cache: LRUCache[int, int] = LRUCache(limit)
    model: list[tuple[int, int]] = []
    for number, (step, key) in enumerate(steps):
        before = dict(model).get(key)
        rest = [item for item in model if item[0] != key]
        if step == "get":
            assert cache.get(key) == before
            model = model if before is None else [*rest, (key, before)]
        elif step == "put":
            cache.put(key, number)
            model = [*rest, (key, number)]
        elif step == "remove":
            cache.remove(key)
            model = rest
        else:
            value = number if before is None else before
            assert cache.get_or_create(key, lambda made=number: made) == value  # type: ignore[misc]
            model = [*rest, (key, value)]
        model = model[-limit:]
        assert cache.items() == model
        assert cache  # also empty: `given or LRUCache(8)` takes the given one


def test_a_value_that_cannot_be_created_leaves_no_key() -> None:
    cache: LRUCache[str, int] = LRUCache(2)
    with pytest.raises(ZeroDivisionError):
        cache.get_or_create("a", lambda: 1 // 0)
    assert cache.items() == []
    assert cache.get_or_create("a", lambda: 1) == 1


def test_threads_create_a_value_once() -> None:
    cache: LRUCache[str, object] = LRUCache(2)
    together, found = Barrier(8), list[object]()

    def ask() -> None:
        together.wait(scaled(10))
        found.append(cache.get_or_create("a", object))

    threads = [Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(scaled(10))
    assert len(found) == 8
    assert len(set(found)) == 1
