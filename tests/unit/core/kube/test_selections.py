"""Readers that need different objects of a kind share one watch, which covers what they need and holds no more."""

from collections.abc import Callable, Iterator

import pytest
from gkm.hoststate.pacing import Backoff
from gkm.kube.api import EVERYTHING, ListSelector
from gkm.kube.errors import ApiError
from gkm.kube.informers import Informers, Selection
from gkm.kube.resources import CONFIGMAPS, Json
from msgspec import Struct
from support.host.waiting import scaled, until
from support.kube.fake_api import FakeApi
from support.kube.listing import reflector_of

OURS = ListSelector("ours")
SOON = Backoff(0.001, 0.002)


def put(api: FakeApi, namespace: str, name: str, value: str = "1") -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}
    api.apply(CONFIGMAPS, body | {"data": {"v": value}}, field_manager="test")


def is_in(namespace: str) -> Callable[[Json], bool]:
    return lambda value: bool(value["metadata"]["namespace"] == namespace)


class Reader:
    """The objects that one reader knows of; it fails where it is told of the end of what it did not know."""

    def __init__(self, informers: Informers, wants: Callable[[Json], bool], selector: ListSelector) -> None:
        self.known: dict[str, str] = {}
        self.selection: Selection[Json] = informers.select(CONFIGMAPS, self._changed, wants=wants, selector=selector)
        reflector_of(self.selection)._backoff = SOON

    def start(self) -> None:
        self.selection.start()
        assert self.selection.synced.wait(scaled(10))

    def _changed(self, old: Json | None, new: Json | None) -> None:
        if old is not None:
            assert self.known.pop(old["metadata"]["name"]) == old["data"]["v"]
        if new is not None:
            self.known[new["metadata"]["name"]] = new["data"]["v"]


@pytest.fixture
def api() -> FakeApi:
    made = FakeApi()
    put(made, "ours", "a")
    put(made, "theirs", "b")
    put(made, "nobodys", "c")
    return made


@pytest.fixture
def informers(api: FakeApi) -> Iterator[Informers]:
    made = Informers(api)
    yield made
    for shared in made._selected.values():
        shared.reflector.close()


def watched(api: FakeApi) -> list[ListSelector]:
    return [each.selector for each in api._watches if not each.closed]


def held(reader: Reader) -> list[str]:
    return sorted(value["metadata"]["name"] for value in reflector_of(reader.selection).values())


def test_one_reader_gets_what_it_selects_and_the_api_server_sends_nothing_else(
    api: FakeApi, informers: Informers
) -> None:
    one = Reader(informers, is_in("ours"), OURS)
    one.start()
    until(lambda: watched(api) == [OURS], "the narrow watch")
    assert (one.known, held(one)) == ({"a": "1"}, ["a"])


def test_a_second_reader_widens_the_one_watch_and_each_knows_its_own(api: FakeApi, informers: Informers) -> None:
    one, two = Reader(informers, is_in("ours"), OURS), Reader(informers, is_in("theirs"), ListSelector("theirs"))
    one.start()
    two.start()
    until(lambda: watched(api) == [EVERYTHING], "one wide watch")
    assert (one.known, two.known) == ({"a": "1"}, {"b": "1"})
    put(api, "ours", "a", "2")
    put(api, "theirs", "b", "2")
    until(lambda: (one.known, two.known) == ({"a": "2"}, {"b": "2"}), "the changes")


def test_what_no_reader_wants_is_not_held(api: FakeApi, informers: Informers) -> None:
    one, two = Reader(informers, is_in("ours"), OURS), Reader(informers, is_in("theirs"), EVERYTHING)
    one.start()
    two.start()
    put(api, "nobodys", "d")
    put(api, "ours", "e")
    until(lambda: "e" in one.known, "a later change")
    assert held(one) == ["a", "b", "e"]


def test_a_reader_that_has_not_started_costs_nothing(api: FakeApi, informers: Informers) -> None:
    one, late = Reader(informers, is_in("ours"), OURS), Reader(informers, is_in("theirs"), EVERYTHING)
    assert [plural for verb, plural, _ in api.calls if verb == "list"] == []
    one.start()
    until(lambda: watched(api) == [OURS], "the narrow watch")
    assert (late.known, late.selection.synced.is_set(), held(one)) == ({}, False, ["a"])


def test_two_readers_of_the_same_objects_both_get_them_and_stay_narrow(api: FakeApi, informers: Informers) -> None:
    one, two = (Reader(informers, is_in("ours"), OURS) for _ in range(2))
    one.start()
    two.start()
    until(lambda: watched(api) == [OURS], "the narrow watch")
    assert one.known == two.known == {"a": "1"}


def test_a_reader_loses_nothing_while_another_widens_the_watch(api: FakeApi, informers: Informers) -> None:
    """The list that widens it fails at first: what is held stays, and the late reader waits."""
    one, late = Reader(informers, is_in("ours"), OURS), Reader(informers, is_in("theirs"), EVERYTHING)
    one.start()
    failures = iter(range(3))
    meanwhile = list[tuple[dict[str, str], bool]]()

    def fault(verb: str, _plural: str) -> ApiError | None:
        if verb != "list" or next(failures, None) is None:
            return None
        meanwhile.append((dict(one.known), late.selection.synced.is_set()))
        return ApiError(503, "", "away")

    api.fault = fault
    late.start()
    assert meanwhile == [({"a": "1"}, False)] * 3
    assert (one.known, late.known) == ({"a": "1"}, {"b": "1"})


def test_an_object_may_go_from_one_reader_to_another(api: FakeApi, informers: Informers) -> None:
    one = Reader(informers, lambda value: value["data"]["v"] == "1", EVERYTHING)
    two = Reader(informers, lambda value: value["data"]["v"] == "2", EVERYTHING)
    one.start()
    two.start()
    put(api, "ours", "a", "2")
    until(lambda: two.known == {"a": "2"}, "it is the other's")
    assert one.known == {"b": "1", "c": "1"}
    assert one.selection.get("a", "ours") is None
    assert two.selection.get("a", "ours") is not None


def test_a_kind_has_one_type_for_all_its_readers(informers: Informers) -> None:
    class Thin(Struct, frozen=True):
        """Another view."""

    Reader(informers, is_in("ours"), OURS)
    with pytest.raises(ValueError, match="configmaps are watched already, as dict"):
        informers.select(CONFIGMAPS.of(Thin), lambda _old, _new: None, wants=lambda _value: True)
