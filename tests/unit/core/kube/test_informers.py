"""One watch of a kind in a process: all readers get each change in order, and a late one first what is there."""

from collections.abc import Iterator
from threading import Barrier, Thread

import pytest
from gkm.hoststate.pacing import Backoff
from gkm.kube.informers import Informers
from gkm.kube.resources import CONFIGMAPS, NODES, Json
from msgspec import Struct
from support.host.waiting import until
from support.kube.fake_api import FakeApi

Change = tuple[str | None, str | None]
SOON = Backoff(0.001, 0.002)


def data(value: Json | None) -> str | None:
    return None if value is None else value["metadata"]["name"] + value.get("data", {}).get("v", "")


class Reader:
    """Everything that a reader was told, and the objects that follow from it."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.present: list[str] = []

    def __call__(self, old: Json | None, new: Json | None) -> None:
        before, after = data(old), data(new)
        self.changes.append((before, after))
        if before is not None:
            self.present.remove(before)
        if after is not None:
            self.present.append(after)


def put(api: FakeApi, name: str, value: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "ns"}}
    api.apply(CONFIGMAPS, body | {"data": {"v": value}}, field_manager="test")


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def informers(api: FakeApi) -> Iterator[Informers]:
    made = Informers(api)
    yield made
    for reflector in made._reflectors.values():
        reflector.close()


def lists(api: FakeApi) -> int:
    return sum(verb == "list" for verb, _, _ in api.calls)


def test_two_readers_of_a_kind_share_one_list_and_one_watch(api: FakeApi, informers: Informers) -> None:
    one, two = Reader(), Reader()
    put(api, "a", "1")
    for reader in (one, two):
        watch = informers.of(CONFIGMAPS)
        watch.subscribe(reader)
        watch.start()
    until(lambda: api._watches, "it watches")
    put(api, "b", "1")
    put(api, "a", "2")
    until(lambda: one.changes == two.changes == [(None, "a1"), (None, "b1"), ("a1", "a2")], "both get it in order")
    assert (lists(api), len(api._watches)) == (1, 1)


def test_a_kind_has_one_watch_and_another_kind_another(informers: Informers) -> None:
    watch = informers.of(CONFIGMAPS)
    assert informers.of(CONFIGMAPS) is watch
    assert informers.of(NODES) is not watch


def test_a_late_reader_gets_what_is_there_before_the_next_change(api: FakeApi, informers: Informers) -> None:
    first, late = Reader(), Reader()
    watch = informers.of(CONFIGMAPS)
    watch.subscribe(first)
    put(api, "a", "1")
    put(api, "b", "1")
    watch.start()
    until(lambda: len(first.present) == 2, "the first reader has it")
    watch.subscribe(late)
    assert sorted(late.changes, key=str) == [(None, "a1"), (None, "b1")]
    api.delete(CONFIGMAPS, "a", "ns")
    until(lambda: late.changes[2:] == [("a1", None)], "the deletion")


def test_a_change_during_a_subscription_comes_after_what_was_there(api: FakeApi, informers: Informers) -> None:
    late = Reader()

    def slow(old: Json | None, new: Json | None) -> None:
        late(old, new)
        if len(late.changes) == 1:
            put(api, "a", "2")
            until(lambda: all(each.idle for each in api._watches), "the watch has taken the change")

    put(api, "a", "1")
    watch = informers.of(CONFIGMAPS)
    watch.start()
    until(lambda: api._watches, "it watches")
    watch.subscribe(slow)
    until(lambda: late.changes == [(None, "a1"), ("a1", "a2")], "both, in order")


def test_readers_that_come_during_changes_miss_none_and_get_none_twice(api: FakeApi, informers: Informers) -> None:
    """`Reader` fails where it is told of the end of what it did not know, or twice of the same."""
    watch = informers.of(CONFIGMAPS)
    watch.start()
    readers = [Reader() for _ in range(20)]
    began = Barrier(2)

    def write() -> None:
        began.wait()
        for number in range(200):
            put(api, f"n{number % 7}", str(number))
            if number % 5 == 0:
                api.delete(CONFIGMAPS, f"n{number % 7}", "ns")

    writer = Thread(target=write)
    writer.start()
    began.wait()
    for reader in readers:
        watch.subscribe(reader)
    writer.join()
    expected = sorted(data(entry.value) or "" for page in api.list_pages(CONFIGMAPS) for entry in page.entries)
    until(lambda: all(sorted(reader.present) == expected for reader in readers), "all have the same")
    for reader in readers:
        assert len(reader.present) == len(set(reader.present))


def test_a_reader_that_fails_keeps_no_change_from_the_others(api: FakeApi, informers: Informers) -> None:
    reader = Reader()

    def failing(_old: object, _new: object) -> None:
        raise RuntimeError("a defect")

    watch = informers.of(CONFIGMAPS)
    watch.subscribe(failing)
    watch.subscribe(reader)
    watch.start()
    put(api, "a", "1")
    until(lambda: reader.changes == [(None, "a1")], "it gets the change")


def test_a_kind_has_one_type_in_a_process(informers: Informers) -> None:
    class Thin(Struct, frozen=True):
        """Another view."""

    informers.of(CONFIGMAPS)
    with pytest.raises(ValueError, match="configmaps are watched already, as dict"):
        informers.of(CONFIGMAPS.of(Thin))
