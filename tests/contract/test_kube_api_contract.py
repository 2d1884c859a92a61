"""One body for both: the fake API in memory and the real kube-apiserver."""

import threading
from typing import Annotated

import pytest
from gkm.kube.api import Api, Change, ListSelector, WatchEvent
from gkm.kube.errors import ApiError
from gkm.kube.resources import CLUSTERGKMCACHES, GKMCACHES, Resource
from msgspec import Meta, Struct
from support.kube.our_kinds import IMAGE, THIN, a_cache


class Choosy(Struct):
    """The part of a spec that only some caches have as it is wanted here."""

    image: Annotated[str, Meta(pattern="^registry.test/")]


class ChoosyCache(Struct):
    """A GKMCache for a reader who cannot read every one that the schema takes."""

    spec: Choosy


CHOOSY = Resource("gkm.io/v1alpha1", "GKMCache", "gkmcaches", namespaced=True, type=ChoosyCache)


def test_what_was_created_is_got_typed(api: Api, wiped: str) -> None:
    created = api.create(GKMCACHES, a_cache(wiped))
    got = api.get(GKMCACHES, wiped, "default")
    assert got == created
    assert (got.spec.image, got.metadata.generation) == (IMAGE, 1)
    assert got.metadata.uid
    assert got.metadata.resource_version


def test_creating_twice_is_a_conflict(api: Api, wiped: str) -> None:
    api.create(GKMCACHES, a_cache(wiped))
    with pytest.raises(ApiError) as caught:
        api.create(GKMCACHES, a_cache(wiped))
    assert (caught.value.conflict, caught.value.reason) == (True, "AlreadyExists")


def test_what_is_not_there_is_not_found_for_every_verb(api: Api, wiped: str) -> None:
    status = a_cache(wiped) | {"status": {"readyNodes": 1}}
    for call in (
        lambda: api.get(GKMCACHES, wiped, "default"),
        lambda: api.delete(GKMCACHES, wiped, "default"),
        lambda: api.merge(GKMCACHES, wiped, {"spec": {"image": IMAGE}}, "default"),
        lambda: api.apply(GKMCACHES, status, field_manager="a", subresource="status"),
        lambda: api.get(CLUSTERGKMCACHES, wiped),
    ):
        with pytest.raises(ApiError) as caught:
            call()
        assert caught.value.not_found


def test_apply_makes_changes_and_takes_back_what_it_owned(api: Api, wiped: str) -> None:
    api.apply(THIN, a_cache(wiped, labels={"a": "1", "b": "2"}), field_manager="one")
    assert api.get(THIN, wiped, "default")["metadata"]["labels"] == {"a": "1", "b": "2"}
    api.apply(THIN, a_cache(wiped, labels={"b": "3"}), field_manager="one")
    assert api.get(THIN, wiped, "default")["metadata"]["labels"] == {"b": "3"}


def test_appliers_leave_each_others_fields_alone(api: Api, wiped: str) -> None:
    api.apply(THIN, a_cache(wiped, labels={"a": "1"}), field_manager="one")
    api.apply(THIN, a_cache(wiped, labels={"b": "2"}), field_manager="two")
    assert api.get(THIN, wiped, "default")["metadata"]["labels"] == {"a": "1", "b": "2"}


def test_an_applier_takes_a_field_from_another(api: Api, wiped: str) -> None:
    api.apply(THIN, a_cache(wiped), field_manager="one")
    assert api.apply(GKMCACHES, a_cache(wiped, image="other.test/x:2"), field_manager="two").spec.image == (
        "other.test/x:2"
    )


def test_status_and_the_rest_are_written_apart(api: Api, wiped: str) -> None:
    api.create(GKMCACHES, a_cache(wiped) | {"status": {"readyNodes": 9}})
    assert api.get(GKMCACHES, wiped, "default").status.ready_nodes == 0
    changed = a_cache(wiped, image="other.test/x:2") | {"status": {"readyNodes": 3}}
    api.apply(GKMCACHES, changed, field_manager="one", subresource="status")
    got = api.get(GKMCACHES, wiped, "default")
    assert (got.spec.image, got.status.ready_nodes, got.metadata.generation) == (IMAGE, 3, 1)


def test_a_changed_spec_is_a_new_generation(api: Api, wiped: str) -> None:
    api.create(GKMCACHES, a_cache(wiped))
    assert api.merge(GKMCACHES, wiped, {"spec": {"image": "other.test/x:2"}}, "default").metadata.generation == 2


def test_a_merge_with_an_old_version_is_a_conflict(api: Api, wiped: str) -> None:
    version = api.create(GKMCACHES, a_cache(wiped)).metadata.resource_version
    api.merge(GKMCACHES, wiped, {"metadata": {"labels": {"a": "1"}}}, "default")
    late = {"metadata": {"resourceVersion": version, "labels": {"a": "2"}}}
    with pytest.raises(ApiError) as caught:
        api.merge(GKMCACHES, wiped, late, "default")
    assert caught.value.conflict


def test_a_merge_for_another_uid_is_invalid(api: Api, wiped: str) -> None:
    former = api.create(GKMCACHES, a_cache(wiped)).metadata.uid
    api.delete(GKMCACHES, wiped, "default")
    present = api.create(GKMCACHES, a_cache(wiped)).metadata.uid
    patch = {"metadata": {"uid": former, "labels": {"a": "1"}}}
    with pytest.raises(ApiError) as caught:
        api.merge(GKMCACHES, wiped, patch, "default")
    assert (caught.value.status, caught.value.reason) == (422, "Invalid")
    assert api.get(GKMCACHES, wiped, "default").metadata.labels == {}
    patch["metadata"]["uid"] = present
    assert api.merge(GKMCACHES, wiped, patch, "default").metadata.labels == {"a": "1"}


@pytest.mark.parametrize("subresource", ["", "status"])
def test_an_apply_of_what_was_made_of_an_old_version_is_a_conflict(api: Api, wiped: str, subresource: str) -> None:
    version = api.create(GKMCACHES, a_cache(wiped)).metadata.resource_version
    current = api.merge(GKMCACHES, wiped, {"metadata": {"labels": {"a": "1"}}}, "default").metadata.resource_version
    status = {"status": {"readyNodes": 3}} if subresource else {}
    late = a_cache(wiped, resourceVersion=version) | status
    with pytest.raises(ApiError) as caught:
        api.apply(GKMCACHES, late, field_manager="one", subresource=subresource)
    assert (caught.value.conflict, caught.value.reason) == (True, "Conflict")
    timely = late | {"metadata": a_cache(wiped, resourceVersion=current)["metadata"]}
    made = api.apply(GKMCACHES, timely, field_manager="one", subresource=subresource)
    assert made.status.ready_nodes == (3 if subresource else 0)


def test_an_apply_to_an_object_that_is_gone_makes_it_anew_but_no_status(api: Api, wiped: str) -> None:
    gone = api.create(GKMCACHES, a_cache(wiped)).metadata
    api.delete(GKMCACHES, wiped, "default")
    late = a_cache(wiped, resourceVersion=gone.resource_version)
    with pytest.raises(ApiError) as caught:
        api.apply(GKMCACHES, late, field_manager="one", subresource="status")
    assert caught.value.not_found
    assert api.apply(GKMCACHES, late, field_manager="one").metadata.uid != gone.uid


def test_a_write_that_changes_nothing_keeps_the_version(api: Api, wiped: str) -> None:
    first = api.apply(GKMCACHES, a_cache(wiped), field_manager="one")
    second = api.apply(GKMCACHES, a_cache(wiped), field_manager="one")
    assert first.metadata.resource_version == second.metadata.resource_version


def test_a_delete_of_another_version_is_a_conflict_and_deletes_nothing(api: Api, wiped: str) -> None:
    first = api.create(GKMCACHES, a_cache(wiped)).metadata
    now = api.merge(GKMCACHES, wiped, {"metadata": {"labels": {"a": "1"}}}, "default").metadata
    with pytest.raises(ApiError) as caught:
        api.delete(GKMCACHES, wiped, "default", uid=first.uid, resource_version=first.resource_version)
    assert (caught.value.conflict, caught.value.reason) == (True, "Conflict")
    assert api.get(GKMCACHES, wiped, "default").metadata.resource_version == now.resource_version
    api.delete(GKMCACHES, wiped, "default", uid=now.uid, resource_version=now.resource_version)
    with pytest.raises(ApiError) as caught:
        api.get(GKMCACHES, wiped, "default")
    assert caught.value.not_found


def test_a_delete_of_another_uid_is_a_conflict_and_deletes_nothing(api: Api, wiped: str) -> None:
    gone = api.create(GKMCACHES, a_cache(wiped)).metadata.uid
    api.delete(GKMCACHES, wiped, "default", uid=gone)
    second = api.create(GKMCACHES, a_cache(wiped)).metadata.uid
    with pytest.raises(ApiError) as caught:
        api.delete(GKMCACHES, wiped, "default", uid=gone)
    assert (caught.value.conflict, caught.value.reason) == (True, "Conflict")
    assert api.get(GKMCACHES, wiped, "default").metadata.uid == second
    api.delete(GKMCACHES, wiped, "default", uid=second)
    with pytest.raises(ApiError) as caught:
        api.get(GKMCACHES, wiped, "default")
    assert caught.value.not_found


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
    reader.join(10)
    assert not reader.is_alive()
    assert ended == [[]]


def _first(watch: object, count: int = 1) -> list[tuple[Change, str]]:
    told = []
    for event in watch:  # type: ignore[attr-defined]
        if event.entry:
            told.append((event.change, event.entry.name))
        if len(told) == count:
            break
    watch.close()  # type: ignore[attr-defined]
    return told
