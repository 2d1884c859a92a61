"""Which kinds are served: read once for a group, remembered for a minute, read again after a 404."""

import json
from typing import TypeVar

import pytest
from gkm.kube import decoding
from gkm.kube.discovery import Discovery, KindName
from gkm.kube.errors import ApiError
from gkm.kube.resources import Json, Resource
from support.kube.fake_api import FakeApi

T = TypeVar("T")


def resource(api_version: str, kind: str, *, namespaced: bool = True) -> Resource[Json]:
    return Resource(api_version, kind, f"{kind.lower()}s", namespaced=namespaced, type=Json)


NEW, OLD = resource("a.test/v2", "Thing"), resource("a.test/v1", "Thing")
OTHER = resource("a.test/v1", "Other")
THING = KindName("a.test", "Thing")


class Sending(FakeApi):
    """An API server that sends these bytes."""

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self._body = body

    def discover(self, path: str, document: type[T]) -> T:
        return decoding.document(path, self._body, document)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def api() -> FakeApi:
    made = FakeApi()
    made.kinds = [NEW, OLD, OTHER]
    return made


def versions(discovery: Discovery, kind: KindName = THING) -> list[str]:
    return [each.api_version for each in discovery.served(kind)]


def test_kinds_of_a_group_share_their_requests(api: FakeApi) -> None:
    discovery = Discovery(api, Clock())
    assert versions(discovery) == ["a.test/v2", "a.test/v1"]
    assert versions(discovery, KindName("a.test", "Other")) == ["a.test/v1"]
    assert versions(discovery, KindName("a.test", "Nothing")) == []
    assert [path for _, path, _ in api.calls] == ["/apis/a.test", "/apis/a.test/v2", "/apis/a.test/v1"]


def test_what_is_read_is_remembered_for_a_minute(api: FakeApi) -> None:
    clock = Clock()
    discovery = Discovery(api, clock)
    versions(discovery)
    api.kinds.remove(NEW)
    clock.now = 59.0
    assert versions(discovery) == ["a.test/v2", "a.test/v1"]
    clock.now = 60.0
    assert versions(discovery) == ["a.test/v1"]


def test_what_is_forgotten_is_read_again(api: FakeApi) -> None:
    discovery = Discovery(api, Clock())
    versions(discovery)
    api.kinds.clear()
    discovery.forget(THING)
    assert versions(discovery) == []


def test_absence_is_an_answer_and_an_error_is_none(api: FakeApi) -> None:
    discovery = Discovery(api, Clock())
    assert versions(discovery, KindName("nothing.test", "Thing")) == []
    api.fault = lambda _verb, path: ApiError(503, "", "away") if path == "/apis/a.test/v1" else None
    with pytest.raises(ApiError, match="away"):
        versions(discovery)
    api.fault = lambda _verb, path: ApiError(404, "", "ended") if path == "/apis/a.test/v2" else None
    assert versions(discovery) == ["a.test/v1"]


@pytest.mark.parametrize("group", ["a/b", "..", "a.test/../v1", "A.test", "a" * 254, "a.test\n", "a?b", "%2e"])
def test_a_text_that_is_no_group_is_not_asked_for(group: str, api: FakeApi) -> None:
    assert Discovery(api, Clock()).served(KindName(group, "Thing")) == ()
    assert api.calls == []


@pytest.mark.parametrize(
    "document",
    [
        {"preferredVersion": {"version": "v1/../v2"}, "versions": []},
        {"preferredVersion": {"version": "v1"}, "versions": [{"version": ""}]},
        {"versions": []},
        [],
    ],
)
def test_a_document_that_violates_the_api_is_an_error(document: object) -> None:
    with pytest.raises(ApiError) as caught:
        Discovery(Sending(json.dumps(document).encode()), Clock()).served(THING)
    assert caught.value.unreadable


def test_kind_names_are_those_of_kubectl() -> None:
    assert str(KindName("", "ConfigMap")) == "ConfigMap"
    assert str(KindName.of("apps/v1", "Deployment")) == "Deployment.apps"
    assert KindName.of("v1", "Pod") == KindName("", "Pod")
