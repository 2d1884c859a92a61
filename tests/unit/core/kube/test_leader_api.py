"""The API of a controller: no write of a process that does not lead leaves it."""

from collections.abc import Callable
from typing import Any

import pytest
from gkm.kube.api import Api
from gkm.kube.elector import NotLeading
from gkm.kube.leader_api import LeaderApi
from gkm.kube.resources import CONFIGMAPS, Resource
from support.kube.fake_api import FakeApi

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


PODS: Resource[Json] = Resource("v1", "Pod", "pods", namespaced=True, type=dict)


def an_api() -> FakeApi:
    api = FakeApi()
    api.kinds += [CONFIGMAPS, PODS]
    api.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "there", "namespace": "ns"}})
    api.create(CONFIGMAPS, config_map("there"))
    api.calls.clear()
    return api


def test_each_verb_of_the_api_is_a_read_or_a_write_here() -> None:
    assert {name for name in vars(Api) if not name.startswith("_")} == READS.keys() | WRITES.keys()


@pytest.mark.parametrize("verb", sorted(WRITES))
def test_a_write_of_a_process_that_does_not_lead_is_not_sent(verb: str) -> None:
    api = an_api()
    with pytest.raises(NotLeading, match="this process no longer holds the lease"):
        WRITES[verb](LeaderApi(api, lambda: False))
    assert api.calls == []


@pytest.mark.parametrize("verb", sorted(WRITES))
def test_a_write_of_the_leader_is_answered_as_by_the_api(verb: str) -> None:
    ours, other = an_api(), an_api()
    assert WRITES[verb](LeaderApi(ours, lambda: True)) == WRITES[verb](other)
    assert ours.calls == other.calls != []


@pytest.mark.parametrize("verb", sorted(READS))
def test_a_read_is_sent_whether_the_process_leads_or_not(verb: str) -> None:
    ours, other = an_api(), an_api()
    assert READS[verb](LeaderApi(ours, lambda: False)) == READS[verb](other)
    assert ours.calls == other.calls != []


def test_leadership_is_asked_before_each_write_anew() -> None:
    api, answers = an_api(), iter([True, False])
    ours = LeaderApi(api, lambda: next(answers))
    WRITES["merge"](ours)
    with pytest.raises(NotLeading, match="this process no longer holds the lease"):
        WRITES["merge"](ours)
    assert len(api.calls) == 1
