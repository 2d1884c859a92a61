"""The values of gkm.kube: paths, pauses, errors and events."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from gkm.api.caches import NAME_PATTERN
from gkm.hoststate.pacing import Backoff
from gkm.kube import decoding
from gkm.kube.api import Change, ListPage, WatchEvent
from gkm.kube.client import HttpWatch, connect
from gkm.kube.credentials import NotConfigured
from gkm.kube.errors import ApiError, from_body
from gkm.kube.events import MAX_NOTE_BYTES, EventBody, Recorder, Regarding
from gkm.kube.resources import CLUSTERGKMCACHES, EVENTS, GKMCACHES, NODES, PROVIDER_TREES, Json
from hypothesis import given
from hypothesis import strategies as st
from support.kube.fake_api import FakeApi
from urllib3.exceptions import ProtocolError


def test_paths_are_those_of_the_api() -> None:
    assert GKMCACHES.path() == "/apis/gkm.io/v1alpha1/gkmcaches"
    assert GKMCACHES.path("a", "b", "status") == "/apis/gkm.io/v1alpha1/namespaces/a/gkmcaches/b/status"
    assert CLUSTERGKMCACHES.path("ignored", "b") == "/apis/gkm.io/v1alpha1/clustergkmcaches/b"
    assert NODES.path(name="n") == "/api/v1/nodes/n"


def test_a_collection_of_another_type_keeps_its_page_size_and_who_writes_it() -> None:
    trees = PROVIDER_TREES.of(dict)
    assert (trees.type, trees.page_limit) == (dict, 4)
    assert trees.unbounded.startswith("only the ServiceAccount of its provider writes it")
    assert trees.of(PROVIDER_TREES.type) == PROVIDER_TREES


def test_a_hostile_name_stays_one_part_of_a_path() -> None:
    assert GKMCACHES.path("a", "../x?y").endswith("/namespaces/a/gkmcaches/..%2Fx%3Fy")


@pytest.mark.parametrize(("namespace", "name"), [("a", ""), ("a", "."), ("a", ".."), (".", "b"), ("..", None)])
def test_a_name_that_changes_the_path_is_not_found(namespace: str, name: str | None) -> None:
    with pytest.raises(ApiError) as caught:
        GKMCACHES.path(namespace, name)
    assert caught.value.not_found


@given(st.integers(0, 10**6), st.floats(0.001, 10), st.floats(10, 1000), st.floats(0, 50))
def test_a_pause_is_bounded_and_never_nothing(failures: int, first: float, cap: float, at_least: float) -> None:
    pause = Backoff(first, cap).pause(failures, at_least)
    assert max(at_least, first / 2) <= pause <= max(at_least * 1.5, cap)


@pytest.mark.parametrize(
    ("status", "properties"),
    [
        (0, set()),
        (403, set()),
        (404, {"not_found"}),
        (409, {"conflict"}),
        (410, {"expired"}),
        (503, set()),
    ],
)
def test_what_an_error_means(status: int, properties: set[str]) -> None:
    error = ApiError(status, "", "")
    names = ("not_found", "conflict", "expired")
    assert {name for name in names if getattr(error, name)} == properties


def test_an_error_has_the_reason_and_message_of_the_server() -> None:
    status = {
        "kind": "Status",
        "reason": "Expired",
        "code": 410,
        "message": "too old",
        "details": {"retryAfterSeconds": 3},
    }
    error = from_body(200, json.dumps(status).encode(), "2")
    assert (error.status, error.reason, error.message, error.retry_after) == (410, "Expired", "too old", 3)
    assert str(error) == "Expired: too old"


@pytest.mark.parametrize("body", [b"", b"Bad Gateway\n<html>", b"\xff\xfe", b"[]", b'"text"', b"null"])
def test_an_error_without_a_status_is_one_line(body: bytes) -> None:
    error = from_body(502, body, "soon")
    assert (error.status, error.retry_after) == (502, 0)
    assert error.message
    assert "\n" not in error.message


def test_an_undecodable_object_hides_no_other() -> None:
    good = {"metadata": {"name": "good", "resourceVersion": "1"}, "spec": {"image": "x"}}
    bad = {"metadata": {"name": "bad", "namespace": "a", "resourceVersion": "2"}, "spec": {"image": 7}}
    body = json.dumps({"metadata": {"resourceVersion": "9", "continue": "c"}, "items": [bad, good]}).encode()
    page, more = decoding.page(GKMCACHES, body)
    assert ([entry.name for entry in page.entries], page.resource_version, more) == (["good"], "9", "c")
    assert page.unreadable == (("a", "bad"),)
    for change in (Change.ADDED, Change.DELETED):
        event = decoding.event(GKMCACHES, json.dumps({"type": change, "object": bad}).encode())
        assert event == WatchEvent(change, "2", None, ("a", "bad"))


@pytest.mark.parametrize("item", [{"metadata": [], "spec": {}}, {"spec": {}}, {"metadata": {"name": "x"}}, 7])
def test_an_object_without_a_name_is_unreadable(item: Json) -> None:
    with pytest.raises(ApiError, match="cannot be read"):
        decoding.page(GKMCACHES, json.dumps({"items": [item], "metadata": {"resourceVersion": "7"}}).encode())
    with pytest.raises(ApiError, match="cannot be read"):
        decoding.event(GKMCACHES, json.dumps({"type": "ADDED", "object": item}).encode())


DEEP = b'{"metadata":{"name":"a","resourceVersion":"2"},"x":' + b"[" * 20_000 + b"]" * 20_000 + b"}"
NO_UTF8 = b'{"metadata":{"name":"\xff","resourceVersion":"2"}}'


@pytest.mark.parametrize("text", [DEEP, NO_UTF8], ids=["nested too deeply", "not UTF-8"])
def test_json_that_cannot_be_decoded_is_an_error_of_the_api(text: bytes) -> None:
    for decode in (
        lambda: decoding.single_object(GKMCACHES, text),
        lambda: decoding.page(GKMCACHES, b'{"metadata":{"resourceVersion":"1"},"items":[' + text + b"]}"),
        lambda: decoding.event(GKMCACHES, b'{"type":"ADDED","object":' + text + b"}"),
    ):
        with pytest.raises(ApiError) as caught:
            decode()
        assert caught.value.unreadable
    assert from_body(500, text).status == 500


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"", "was truncated"),
        (b"{", "was truncated"),
        (b'{"type":"NEW","object":{}}', "'NEW' is not a valid Change"),
        (b'{"type":"BOOKMARK","object":7}', "Expected `object`, got `int`"),
        (b"[]", "Expected `object`, got `array`"),
    ],
)
def test_a_line_that_is_no_event_is_an_api_error(line: bytes, problem: str) -> None:
    with pytest.raises(ApiError, match=f"GKMCache cannot be read: .*{problem}"):
        decoding.event(GKMCACHES, line)


def test_a_body_that_is_no_list_is_an_api_error() -> None:
    with pytest.raises(ApiError, match=r"GKMCache cannot be read: .*got `int` - at `\$\.items`"):
        decoding.page(GKMCACHES, b'{"items": 7}')
    empty = b'{"items": null, "metadata": {"resourceVersion": "7"}}'
    assert decoding.page(GKMCACHES, empty) == (ListPage((), "7"), "")


def test_an_error_in_a_watch_is_raised_with_its_code() -> None:
    status = {"kind": "Status", "code": 500, "message": "etcd", "reason": "InternalError"}
    for told, code in ((status, 500), ({"kind": "Status", "message": "x"}, 410)):
        with pytest.raises(ApiError) as caught:
            decoding.event(GKMCACHES, json.dumps({"type": "ERROR", "object": told}).encode())
        assert caught.value.status == code


class Answer:
    """The part of an answer that a watch reads."""

    def __init__(self, *chunks: bytes | Exception) -> None:
        self.chunks = chunks
        self.closed = False

    def stream(self, _: int) -> Any:  # noqa: ANN401 -- a generator of what the test says
        for chunk in self.chunks:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk

    def close(self) -> None:
        self.closed = True


def watch_of(*chunks: bytes | Exception) -> tuple[HttpWatch[Any], Answer]:
    answer = Answer(*chunks)
    response: Any = answer
    return HttpWatch(GKMCACHES, response), answer


LINE = json.dumps(
    {"type": "ADDED", "object": {"metadata": {"name": "x", "resourceVersion": "5"}, "spec": {"image": "y"}}}
).encode()


@given(st.lists(st.integers(1, 2 * len(LINE)), max_size=8))
def test_events_are_whole_however_the_bytes_come(cuts: list[int]) -> None:
    data = LINE + b"\n" + LINE + b"\n\n"
    borders = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    watch, answer = watch_of(*(data[a:b] for a, b in pairwise(borders)))
    assert [event.change for event in watch] == [Change.ADDED, Change.ADDED]
    assert answer.closed


def test_a_broken_connection_is_an_error_and_half_an_event_is_none() -> None:
    watch, answer = watch_of(LINE[:20], ProtocolError("broken"))
    with pytest.raises(ApiError) as caught:
        list(watch)
    assert caught.value.reason == "Broken"
    assert answer.closed


def test_an_endless_line_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gkm.kube.client.MAX_LINE_BYTES", 100)
    watch, _ = watch_of(b"x" * 60, b"x" * 60)
    with pytest.raises(ApiError, match="longer than"):
        list(watch)


def test_a_watch_that_was_closed_before_it_is_read_is_empty() -> None:
    watch, answer = watch_of(LINE + b"\n")
    watch.close()
    assert list(watch) == []
    assert answer.closed


def test_a_missing_configuration_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:  # noqa: ANN401
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(NotConfigured, match="no kubeconfig or pod credentials"):
        connect(str(tmp_path / "none"))


REGARDING = Regarding("gkm.io/v1alpha1", "GKMCache", "x", "a", "uid-1")
RECORDER = Recorder(FakeApi(), "gkm.io/caches", "pod")
MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_an_event_fits_the_api() -> None:
    told = EventBody("Warning", "SignatureMissing", "Verify", "ü" * MAX_NOTE_BYTES)
    made = RECORDER.event(REGARDING, told, "now", MOMENT)
    assert len(made["note"].encode()) < MAX_NOTE_BYTES
    assert made["eventTime"] == "2026-01-02T03:04:05.000000Z"
    assert made["regarding"]["namespace"] == made["metadata"]["namespace"] == "a"


@pytest.mark.parametrize("mark", [".", "-", ".-.-"])
def test_the_name_of_an_event_is_one_also_where_that_of_its_object_is_cut(mark: str) -> None:
    regarding = replace(REGARDING, name="x" * (200 - len(mark)) + mark + "y" * 40)
    made = RECORDER.event(regarding, EventBody("Normal", "R", "A", ""), "now", MOMENT)
    assert re.fullmatch(NAME_PATTERN, made["metadata"]["name"])


def test_an_event_about_a_cluster_wide_object_lives_in_default() -> None:
    made = RECORDER.event(Regarding("v1", "Node", "n", "", "u"), EventBody("Normal", "R", "A", ""), "now", MOMENT)
    assert made["metadata"]["namespace"] == "default"
    assert "namespace" not in made["regarding"]


def test_an_event_of_one_occasion_is_created_once_by_several_processes() -> None:
    api = FakeApi()
    good, bad = EventBody("Normal", "Good", "Verify", ""), EventBody("Warning", "Bad", "Verify", "")
    for controller, instance in (("gkm.io/caches", "pod"), ("c", "another")):
        for told, occasion in ((good, "1"), (good, "1"), (bad, "1"), (good, "2")):
            Recorder(api, controller, instance).emit(REGARDING, told, occasion)
    reasons = [entry.value["reason"] for page in api.list_pages(EVENTS) for entry in page.entries]
    assert sorted(reasons) == ["Bad", "Good", "Good"]


def test_a_refused_event_raises_nothing() -> None:
    api = FakeApi()
    api.fault = lambda _verb, _plural: ApiError(403, "Forbidden", "no")
    Recorder(api, "gkm.io/caches", "pod").emit(REGARDING, EventBody("Normal", "Good", "Verify", ""), "now")
    assert [(verb, plural) for verb, plural, _ in api.calls] == [("create", "events")]


def test_an_object_to_write_may_be_a_struct_or_json() -> None:
    made: Json = {
        "apiVersion": "gkm.io/v1alpha1",
        "kind": "GKMCache",
        "metadata": {"name": "x"},
        "spec": {"image": "y"},
    }
    cache = decoding.single_object(GKMCACHES, json.dumps(made).encode())
    assert decoding.plain(made) is made
    assert {"apiVersion": "gkm.io/v1alpha1", "kind": "GKMCache"}.items() <= decoding.plain(cache).items()


@pytest.mark.parametrize("name", ["p\udcff", "\ud800"])
def test_a_name_of_any_bytes_has_a_path(name: str) -> None:
    """The arguments of a command line may be no UTF-8; the API server has no object of that name."""
    path = GKMCACHES.path("team", name)
    assert path.startswith("/apis/gkm.io/v1alpha1/namespaces/team/gkmcaches/")
    assert path.isascii()
