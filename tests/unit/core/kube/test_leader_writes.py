"""The API of a controller: no write of a process that does not lead leaves it."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from gkm.kube.api import Api
from gkm.kube.elector import Elector, NotLeading
from gkm.kube.resources import CONFIGMAPS
from support.kube.fake_api import FakeApi
from support.kube.raw_server import UNAUTHORIZED, RawServer, response

Json = dict[str, Any]
Request = Callable[[Api], object]


def config_map(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "ns"}, "data": {"a": "1"}}


WRITES: dict[str, Request] = {
    "apply": lambda api: api.apply(CONFIGMAPS, config_map("there"), field_manager="test"),
    "merge": lambda api: api.merge(CONFIGMAPS, "there", {"data": {"a": "2"}}, "ns"),
    "create": lambda api: api.create(CONFIGMAPS, config_map("new")),
    "delete": lambda api: api.delete(CONFIGMAPS, "there", "ns"),
}
READS: dict[str, Request] = {
    "get": lambda api: api.get(CONFIGMAPS, "there", "ns"),
    "find": lambda api: api.find(CONFIGMAPS, "there", "ns"),
    "list_pages": lambda api: [entry.value for page in api.list_pages(CONFIGMAPS) for entry in page.entries],
    "watch": lambda api: api.watch(CONFIGMAPS, "0").close(),
    "log": lambda api: api.log("there", "main", "ns", 10, 1000),
    "discover": lambda api: api.discover("/api/v1", dict),
}


ANYTHING = json.dumps({"metadata": {"name": "there", "resourceVersion": "1"}, "items": []}).encode()


@pytest.fixture
def server() -> Iterator[RawServer]:
    with RawServer.start(lambda _head: response("200 OK", ANYTHING)) as started:
        yield started


def refuse() -> None:
    raise NotLeading("another process may lead")


def test_each_verb_of_the_api_is_a_read_or_a_write_here() -> None:
    assert {name for name in vars(Api) if not name.startswith("_")} == READS.keys() | WRITES.keys()


@pytest.mark.parametrize("verb", sorted(WRITES))
def test_a_write_of_a_process_that_does_not_lead_is_not_sent(verb: str, server: RawServer) -> None:
    with pytest.raises(NotLeading, match="another process may lead"):
        WRITES[verb](server.api(refuse))
    assert server.heads == []


@pytest.mark.parametrize("verb", sorted(WRITES))
def test_a_write_of_the_leader_is_sent(verb: str, server: RawServer) -> None:
    WRITES[verb](server.api(lambda: None))
    assert len(server.heads) == 1


@pytest.mark.parametrize("verb", sorted(READS))
def test_a_read_is_sent_whether_the_process_leads_or_not(verb: str, server: RawServer) -> None:
    READS[verb](server.api(refuse))
    assert len(server.heads) == 1


def test_leadership_is_asked_before_each_write_anew(server: RawServer) -> None:
    answers = iter([None, NotLeading("another process may lead")])
    ours = server.api(lambda: raising(next(answers)))
    WRITES["merge"](ours)
    with pytest.raises(NotLeading, match="another process may lead"):
        WRITES["merge"](ours)
    assert len(server.heads) == 1


def test_a_write_is_not_sent_again_with_new_credentials_once_another_process_may_lead() -> None:
    answers = iter([None, NotLeading("another process may lead")])
    with RawServer.start(lambda _head: UNAUTHORIZED) as server:
        with pytest.raises(NotLeading, match="another process may lead"):
            WRITES["merge"](server.api(lambda: raising(next(answers))))
        assert len(server.heads) == 1, "the second request was sent without a check"


def test_the_elector_refuses_while_it_does_not_hold_the_lease() -> None:
    elector = Elector(FakeApi(), "ns", "lease", "me")
    with pytest.raises(NotLeading, match="this process no longer holds the lease"):
        elector.check_leading()
    assert elector.try_acquire_or_renew()
    elector.check_leading()


def raising(error: Exception | None) -> None:
    if error is not None:
        raise error
