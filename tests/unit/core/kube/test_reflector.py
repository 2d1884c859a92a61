"""A reflector reports every change once, however its watches end."""

import json
from collections.abc import Iterator

import pytest
from gkm.api.caches import GKMCache
from gkm.hoststate.pacing import Backoff
from gkm.kube.api import ListSelector
from gkm.kube.errors import ApiError
from gkm.kube.reflector import Reflector
from gkm.kube.resources import GKMCACHES, Json, Resource
from support.host.waiting import scaled, until
from support.kube.fake_api import FakeApi

SOON = Backoff(0.001, 0.002)
AWAY = ApiError(0, "Unreachable", "the API server does not answer")
THIN: Resource[Json] = Resource("gkm.io/v1alpha1", "GKMCache", "gkmcaches", namespaced=True, type=Json)


class Reports:
    """The changes that a handler received: (old image, new image) by name."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, str | None, str | None]] = []

    def __call__(self, old: GKMCache | None, new: GKMCache | None) -> None:
        cache = new or old
        assert cache
        self.changes.append((cache.metadata.name, old.spec.image if old else None, new.spec.image if new else None))


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.fixture
def reflector(api: FakeApi, reports: Reports) -> Iterator[Reflector[GKMCache]]:
    made = Reflector(api, GKMCACHES, reports, backoff=SOON)
    yield made
    made.close()


def cache(name: str, image: str = "one") -> Json:
    return {
        "apiVersion": "gkm.io/v1alpha1",
        "kind": "GKMCache",
        "metadata": {"name": name, "namespace": "a"},
        "spec": {"image": image},
    }


def changed(api: FakeApi, name: str, image: str) -> None:
    api.merge(GKMCACHES, name, {"spec": {"image": image}}, "a")


def spoil(api: FakeApi, name: str, image: object = 7) -> None:
    """Make an object so that it cannot be read as a GKMCache."""
    api.merge(THIN, name, {"spec": {"image": image}}, "a")


def calls(api: FakeApi, verb: str) -> int:
    return sum(1 for called, _, _ in list(api.calls) if called == verb)


def test_an_object_that_is_not_retained_looks_deleted(api: FakeApi, reports: Reports) -> None:
    api.create(GKMCACHES, cache("x"))
    api.create(GKMCACHES, cache("y", "unwanted"))
    reflector = Reflector(api, GKMCACHES, reports, retain=lambda found: found.spec.image != "unwanted", backoff=SOON)
    reflector.start()
    try:
        assert reflector.synced.wait(scaled(10))
        assert [found.metadata.name for found in reflector.values()] == ["x"]
        changed(api, "x", "unwanted")
        changed(api, "y", "two")
        until(lambda: len(reports.changes) == 3, "both changes")
        assert reports.changes == [("x", None, "one"), ("x", "one", None), ("y", None, "two")]
        assert (reflector.get("x", "a"), [found.metadata.name for found in reflector.values()]) == (None, ["y"])
        changed(api, "y", "unwanted")
        api.forget_history()
        api.cut()
        until(lambda: len(reports.changes) == 4, "the rejected object to go")
        api.delete(GKMCACHES, "y", "a")
        api.create(GKMCACHES, cache("z"))
        until(lambda: reflector.get("z", "a") is not None, "the new object")
    finally:
        reflector.close()
    assert reports.changes[3:] == [("y", "two", None), ("z", None, "one")]


def test_existing_objects_are_reported_and_then_changes(
    api: FakeApi, reports: Reports, reflector: Reflector[GKMCache]
) -> None:
    api.create(GKMCACHES, cache("x"))
    reflector.start()
    assert reflector.synced.wait(scaled(10))
    assert reports.changes == [("x", None, "one")]
    changed(api, "x", "two")
    api.create(GKMCACHES, cache("y"))
    api.delete(GKMCACHES, "x", "a")
    until(lambda: len(reports.changes) == 4, "all is told")
    assert reports.changes[1:] == [("x", "one", "two"), ("y", None, "one"), ("x", "two", None)]
    assert [found.metadata.name for found in reflector.values()] == ["y"]
    assert reflector.get("x", "a") is None
    assert reflector.get("y", "a") is not None


def test_it_is_synced_after_a_whole_list_only(api: FakeApi, reports: Reports, reflector: Reflector[GKMCache]) -> None:
    refusals = iter([AWAY, AWAY])
    api.fault = lambda verb, _: next(refusals, None) if verb == "list" else None
    assert not reflector.synced.is_set()
    reflector.start()
    assert reflector.synced.wait(scaled(10))
    assert calls(api, "list") == 3
    assert reports.changes == []


def test_an_ended_watch_is_resumed(api: FakeApi, reports: Reports, reflector: Reflector[GKMCache]) -> None:
    reflector.start()
    assert reflector.synced.wait(scaled(10))
    for number in range(5):
        api.create(GKMCACHES, cache(f"x{number}"))
        api.cut(AWAY if number % 2 else None)
    until(lambda: len(reports.changes) == 5, "all is told")
    assert [name for name, _, _ in reports.changes] == [f"x{number}" for number in range(5)]
    assert calls(api, "list") == 1


def test_a_bookmark_moves_the_version_on(api: FakeApi, reflector: Reflector[GKMCache]) -> None:
    reflector.start()
    until(lambda: calls(api, "watch") == 1, "it watches")
    api.bookmark()
    api.cut()
    until(lambda: calls(api, "watch") == 2, "it watches again")
    assert [version for verb, _, version in api.calls if verb == "watch"] == ["0", "1"]


def test_after_gone_the_missed_changes_are_reported_with_deletions(
    api: FakeApi, reports: Reports, reflector: Reflector[GKMCache]
) -> None:
    for name in ("stays", "changes", "goes"):
        api.create(GKMCACHES, cache(name))
    reflector.start()
    assert reflector.synced.wait(scaled(10))
    del reports.changes[:]
    api.fault = lambda verb, _: AWAY if verb == "watch" else None
    api.cut()
    changed(api, "changes", "two")
    api.delete(GKMCACHES, "goes", "a")
    api.create(GKMCACHES, cache("comes"))
    api.forget_history()
    api.fault = lambda _verb, _plural: None
    until(lambda: len(reports.changes) == 3, "the gap is told")
    assert sorted(reports.changes) == [("changes", "one", "two"), ("comes", None, "one"), ("goes", "one", None)]
    assert calls(api, "list") == 2


@pytest.mark.parametrize("gone", [False, True])
def test_an_object_that_becomes_undecodable_stays_as_last_decoded(
    api: FakeApi,
    reports: Reports,
    reflector: Reflector[GKMCache],
    gone: bool,  # noqa: FBT001 -- a parameter
) -> None:
    api.create(GKMCACHES, cache("x"))
    reflector.start()
    assert reflector.synced.wait(scaled(10))
    if gone:
        api.fault = lambda verb, _: AWAY if verb == "watch" else None
        api.cut()
    spoil(api, "x")
    if gone:
        api.forget_history()
        api.fault = lambda _verb, _plural: None
    until(lambda: reflector.unreadable == {("a", "x")}, "it is known to be unreadable")
    assert reports.changes == [("x", None, "one")]
    assert [found.spec.image for found in reflector.values()] == ["one"]
    spoil(api, "x", "two")
    until(lambda: reports.changes[1:] == [("x", "one", "two")], "it is read again")
    until(lambda: not reflector.unreadable, "and no longer unreadable")


def test_an_object_that_was_never_decodable_is_neither_delivered_nor_deleted(
    api: FakeApi, reports: Reports, reflector: Reflector[GKMCache]
) -> None:
    api.create(GKMCACHES, cache("good"))
    api.create(THIN, cache("bad") | {"spec": {"image": 7}})
    reflector.start()
    assert reflector.synced.wait(scaled(10))
    assert reports.changes == [("good", None, "one")]
    assert reflector.unreadable == {("a", "bad")}
    api.delete(THIN, "bad", "a")
    until(lambda: not reflector.unreadable, "it is gone")
    assert reports.changes == [("good", None, "one")]


def test_the_deletion_of_an_undecodable_object_is_reported(
    api: FakeApi, reports: Reports, reflector: Reflector[GKMCache]
) -> None:
    api.create(GKMCACHES, cache("x"))
    reflector.start()
    assert reflector.synced.wait(scaled(10))
    spoil(api, "x")
    api.delete(THIN, "x", "a")
    until(lambda: reports.changes[1:] == [("x", "one", None)], "the delete is told")
    assert reflector.unreadable == frozenset()


def test_a_handler_that_fails_loses_that_event_only(api: FakeApi) -> None:
    seen = []

    def handler(_: GKMCache | None, new: GKMCache | None) -> None:
        assert new
        seen.append(new.metadata.name)
        if new.metadata.name == "bad":
            raise RuntimeError("no")

    reflector = Reflector(api, GKMCACHES, handler, backoff=SOON)
    api.create(GKMCACHES, cache("bad"))
    reflector.start()
    assert reflector.synced.wait(scaled(10))
    api.create(GKMCACHES, cache("good"))
    until(lambda: seen == ["bad", "good"], "the next one is told")
    assert calls(api, "list") == 1
    reflector.close()


def test_only_selected_objects_are_reported(api: FakeApi, reports: Reports) -> None:
    reflector = Reflector(api, GKMCACHES, reports, selector=ListSelector(fields="metadata.name=mine"), backoff=SOON)
    api.create(GKMCACHES, cache("theirs"))
    reflector.start()
    assert reflector.synced.wait(scaled(10))
    api.create(GKMCACHES, cache("mine"))
    until(lambda: reports.changes == [("mine", None, "one")], "mine is told")
    reflector.close()


def test_it_survives_any_exception(api: FakeApi, reports: Reports, reflector: Reflector[GKMCache]) -> None:
    failures = iter([json.JSONDecodeError("nonsense", "", 0), KeyError("nonsense")])

    def fault(verb: str, _: str) -> ApiError | None:
        if verb == "list" and (failure := next(failures, None)):
            raise failure
        return None

    api.fault = fault
    api.create(GKMCACHES, cache("x"))
    reflector.start()
    until(lambda: reports.changes == [("x", None, "one")], "it is told at last")


def test_closing_ends_it_while_it_watches_and_while_it_waits(api: FakeApi, reports: Reports) -> None:
    watching = Reflector(api, GKMCACHES, reports)
    watching.start()
    assert watching.synced.wait(scaled(10))
    waiting = Reflector(FakeApi(), GKMCACHES, reports, backoff=Backoff(3600, 3600))
    waiting._api.fault = lambda _verb, _plural: AWAY  # type: ignore[attr-defined]
    waiting.start()
    until(lambda: waiting._api.calls, "it tried once")  # type: ignore[attr-defined]
    for reflector in (watching, waiting):
        reflector.close(10)
        assert reflector._thread
        assert not reflector._thread.is_alive()


def test_closed_before_it_began_it_does_nothing(api: FakeApi, reports: Reports) -> None:
    reflector = Reflector(api, GKMCACHES, reports)
    reflector.close()
    reflector.run()
    assert api.calls == []


def test_repeated_cuts_of_the_network_cause_no_backoff(api: FakeApi, reports: Reports) -> None:
    """Each watch brought something before it broke off: the next one follows soon, however many did."""
    asked: list[int] = []

    class Noted(Backoff):
        def pause(self, failures: int, at_least: float = 0.0) -> float:
            asked.append(failures)
            return super().pause(1, at_least) / 1000

    reflector = Reflector(api, GKMCACHES, reports, backoff=Noted())
    reflector.start()
    try:
        assert reflector.synced.wait(scaled(10))
        for number in range(30):
            until(lambda: api._watches, "it watches")
            api.create(GKMCACHES, cache(f"x{number}"))
            api.cut(AWAY)
        until(lambda: len(reports.changes) == 30 and len(asked) == 30, "all is told")
    finally:
        reflector.close()
    assert set(asked[:30]) == {1}
