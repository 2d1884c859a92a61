"""What lists and watches show: one body for the fake API in memory and the real kube-apiserver."""

import threading
from typing import Annotated

import pytest
from gkm.kube.api import Api, Change, ListSelector, WatchEvent
from gkm.kube.errors import ApiError
from gkm.kube.resources import GKMCACHES, Json, Resource
from msgspec import Meta, Struct
from support.host.waiting import scaled, until
from support.kube.fake_api import FakeApi
from support.kube.garbage import collect_garbage
from support.kube.our_kinds import IMAGE, THIN, a_cache


class Choosy(Struct):
    """The part of a spec that only some caches have as it is wanted here."""

    image: Annotated[str, Meta(pattern="^registry.test/")]


class ChoosyCache(Struct):
    """A GKMCache for a reader who cannot read every one that the schema takes."""

    spec: Choosy


CHOOSY = Resource("gkm.io/v1alpha1", "GKMCache", "gkmcaches", namespaced=True, type=ChoosyCache)


def test_an_object_with_a_finalizer_goes_when_the_last_one_is_removed(api: Api, wiped: str) -> None:
    version = next(iter(api.list_pages(GKMCACHES))).resource_version
    api.create(GKMCACHES, a_cache(wiped, finalizers=["test.gkm.io/a", "test.gkm.io/b"]))
    api.delete(GKMCACHES, wiped, "default")
    api.delete(GKMCACHES, wiped, "default")
    assert api.get(GKMCACHES, wiped, "default").metadata.deletion_timestamp
    with pytest.raises(ApiError) as caught:
        api.create(GKMCACHES, a_cache(wiped))
    assert caught.value.conflict
    api.merge(GKMCACHES, wiped, {"metadata": {"finalizers": ["test.gkm.io/b"]}}, "default")
    assert api.merge(GKMCACHES, wiped, {"metadata": {"finalizers": None}}, "default").metadata.deletion_timestamp
    with pytest.raises(ApiError) as caught:
        api.get(GKMCACHES, wiped, "default")
    assert caught.value.not_found
    watch = api.watch(GKMCACHES, version, ListSelector(fields=f"metadata.name={wiped}"))
    changes = [change for change, _ in _first(watch, 4)]
    assert changes == [Change.ADDED, Change.MODIFIED, Change.MODIFIED, Change.DELETED]


def test_a_list_comes_in_pages_of_one_version(api: Api, wiped: str) -> None:
    names = [f"{wiped}-{number}" for number in range(5)]
    for name in names:
        api.create(GKMCACHES, a_cache(name))
    pages = list(api.list_pages(GKMCACHES, ListSelector(namespace="default"), limit=2))
    found = [entry.name for page in pages for entry in page.entries if entry.name.startswith(wiped)]
    assert found == names
    assert len(pages) >= 3
    assert len({page.resource_version for page in pages}) == 1


def test_a_list_and_a_watch_take_selectors(api: Api, wiped: str) -> None:
    api.create(GKMCACHES, a_cache(f"{wiped}-a", labels={wiped: "yes"}))
    api.create(GKMCACHES, a_cache(f"{wiped}-b"))
    by_label = ListSelector(labels=f"{wiped}=yes")
    by_name = ListSelector(namespace="default", fields=f"metadata.name={wiped}-b")
    assert [e.name for page in api.list_pages(GKMCACHES, by_label) for e in page.entries] == [f"{wiped}-a"]
    has_label = ListSelector(labels=wiped)
    assert [e.name for page in api.list_pages(GKMCACHES, has_label) for e in page.entries] == [f"{wiped}-a"]
    assert [e.name for page in api.list_pages(GKMCACHES, by_name) for e in page.entries] == [f"{wiped}-b"]
    version = next(iter(api.list_pages(GKMCACHES))).resource_version
    watch = api.watch(GKMCACHES, version, by_name)
    api.merge(GKMCACHES, f"{wiped}-a", {"metadata": {"labels": {"c": "1"}}}, "default")
    api.merge(GKMCACHES, f"{wiped}-b", {"metadata": {"labels": {"c": "1"}}}, "default")
    assert _first(watch) == [(Change.MODIFIED, f"{wiped}-b")]


def test_what_cannot_be_read_is_named_where_it_would_stand(api: Api, wiped: str) -> None:
    names = [f"{wiped}-{number}" for number in range(3)]
    for name, image in zip(names, (IMAGE, "other.test/x:1", IMAGE), strict=True):
        api.create(THIN, a_cache(name, image=image))
    pages = list(api.list_pages(CHOOSY, ListSelector(namespace="default"), limit=2))
    assert [e.name for page in pages for e in page.entries if e.name.startswith(wiped)] == [names[0], names[2]]
    assert [key for page in pages for key in page.unreadable if key[1].startswith(wiped)] == [("default", names[1])]


def test_a_watch_names_what_cannot_be_read_also_when_it_is_deleted(api: Api, wiped: str) -> None:
    version = next(iter(api.list_pages(GKMCACHES))).resource_version
    api.create(THIN, a_cache(wiped, image="other.test/x:1"))
    api.merge(THIN, wiped, {"spec": {"image": IMAGE}}, "default")
    api.merge(THIN, wiped, {"spec": {"image": "other.test/x:2"}}, "default")
    api.delete(THIN, wiped, "default")
    told = []
    watch = api.watch(CHOOSY, version, ListSelector(fields=f"metadata.name={wiped}"))
    for event in watch:
        if event.change is not Change.BOOKMARK:
            told.append((event.change, event.unreadable, event.entry is not None, bool(event.resource_version)))
        if event.change is Change.DELETED:
            break
    watch.close()
    key = ("default", wiped)
    assert told == [
        (Change.ADDED, key, False, True),
        (Change.MODIFIED, None, True, True),
        (Change.MODIFIED, key, False, True),
        (Change.DELETED, key, False, True),
    ]


def test_a_watch_tells_what_changed_after_its_version_in_order(api: Api, wiped: str) -> None:
    version = next(iter(api.list_pages(GKMCACHES))).resource_version
    api.create(GKMCACHES, a_cache(wiped))
    api.merge(GKMCACHES, wiped, {"spec": {"image": "other.test/x:2"}}, "default")
    api.delete(GKMCACHES, wiped, "default")
    watch = api.watch(GKMCACHES, version, ListSelector(namespace="default"))
    told = _first(watch, 3)
    assert told == [(Change.ADDED, wiped), (Change.MODIFIED, wiped), (Change.DELETED, wiped)]


def test_a_watch_can_be_taken_up_where_it_ended(api: Api, wiped: str) -> None:
    version = next(iter(api.list_pages(GKMCACHES))).resource_version
    api.create(GKMCACHES, a_cache(f"{wiped}-a"))
    api.create(GKMCACHES, a_cache(f"{wiped}-b"))
    events: list[WatchEvent[object]] = []
    watch = api.watch(GKMCACHES, version, ListSelector(namespace="default"))
    for event in watch:
        events.append(event)
        break
    watch.close()
    again = api.watch(GKMCACHES, events[0].resource_version, ListSelector(namespace="default"))
    assert _first(again) == [(Change.ADDED, f"{wiped}-b")]


def test_closing_a_watch_ends_it_for_the_thread_that_waits_in_it(api: Api, wiped: str) -> None:
    version = next(iter(api.list_pages(GKMCACHES))).resource_version
    watch = api.watch(GKMCACHES, version, ListSelector(fields=f"metadata.name={wiped}"))
    ended: list[object] = []
    reader = threading.Thread(target=lambda: ended.append(list(watch)))
    reader.start()
    watch.close()
    watch.close()
    reader.join(scaled(10))
    assert not reader.is_alive()
    assert ended == [[]]


def test_a_delete_in_the_foreground_leaves_the_object_to_the_garbage_collector(api: Api, wiped: str) -> None:
    version = next(iter(api.list_pages(GKMCACHES))).resource_version
    uid = api.create(GKMCACHES, a_cache(wiped)).metadata.uid
    api.delete(GKMCACHES, wiped, "default", uid=uid, foreground=True)
    watch = api.watch(GKMCACHES, version, ListSelector(fields=f"metadata.name={wiped}"))
    if isinstance(api, FakeApi):
        collect_garbage(api)
    changes = [change for change, _ in _first(watch, 3)]
    assert changes == [Change.ADDED, Change.MODIFIED, Change.DELETED]
    until(lambda: not _names(api, wiped), "it to be gone")


def test_of_a_resource_of_metadata_every_verb_returns_metadata_only(api: Api, wiped: str) -> None:
    reduced = Resource(THIN.api_version, THIN.kind, THIN.plural, namespaced=True, type=Json, metadata_only=True)
    version = next(iter(api.list_pages(reduced))).resource_version
    created = api.create(reduced, a_cache(wiped, labels={"a": "1"}), field_manager="gkm")
    assert api.get(THIN, wiped, "default")["spec"]["image"] == IMAGE
    listed = [e.value for page in api.list_pages(reduced, limit=1) for e in page.entries if e.name == wiped]
    watch = api.watch(reduced, version, ListSelector(fields=f"metadata.name={wiped}"))
    watched = next(event.entry.value for event in watch if event.entry)
    watch.close()
    for found in (created, api.get(reduced, wiped, "default"), *listed, watched):
        assert (found["metadata"]["name"], found["metadata"]["labels"]) == (wiped, {"a": "1"})
        assert found["metadata"]["uid"]
        assert "spec" not in found


def _names(api: Api, name: str) -> list[str]:
    return [entry.name for page in api.list_pages(THIN) for entry in page.entries if entry.name == name]


def _first(watch: object, count: int = 1) -> list[tuple[Change, str]]:
    told = []
    for event in watch:  # type: ignore[attr-defined]
        if event.entry:
            told.append((event.change, event.entry.name))
        if len(told) == count:
            break
    watch.close()  # type: ignore[attr-defined]
    return told
