"""An object that is too large is never taken for a good one: it is held as an outline, or refused with its field."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from gkm.kube.api import ObjectEntry
from gkm.kube.events import Recorder
from gkm.kube.reflector import Reflector
from gkm.kube.refusals import BURST, RefusalEvents
from gkm.kube.resources import COMPUTEDOMAINS, EVENTS, WATCHED_CACHES, Json, Resource
from gkm_operator.plans.state.objects import RUNS
from support.host.waiting import until
from support.kube.fake_api import FakeApi

OWNERS = [{"apiVersion": "v1", "kind": "Pod", "name": f"pod-{n}", "uid": f"uid-{n}"} for n in range(300)]
SCOPES = [{"name": f"s{n}", "maxGPUs": 8, "selector": {"labels": {f"{'k' * 60}{n}": "v" * 63}}} for n in range(16)]


def an_object(resource: Resource[Any], name: str, **parts: Any) -> Json:  # noqa: ANN401 -- JSON
    metadata = {"name": name, "namespace": "a", "uid": f"uid-of-{name}"} | parts.pop("metadata", {})
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **parts}


def a_run(name: str, scopes: list[Json]) -> Json:
    many = [
        {
            **scope,
            "selector": {"labels": {f"{key}-{n}": "v" * 63 for key in scope["selector"]["labels"] for n in range(32)}},
        }
        for scope in scopes
    ]
    return an_object(RUNS, name, spec={"flavor": "h100", "gpus": 8, "scopes": many})


def watched(api: FakeApi, resource: Resource[Any], **options: Any) -> Reflector[Any]:  # noqa: ANN401
    reflector = Reflector(api, resource, lambda _old, _new: None, **options)
    reflector.start()
    assert reflector.synced.wait(10)
    return reflector


@pytest.fixture
def closing() -> Any:  # noqa: ANN401 -- a generator
    opened: list[Reflector[Any]] = []
    yield opened.append
    for reflector in opened:
        reflector.close()


Closing = Callable[[Reflector[Any]], None]


def test_a_large_object_is_held_as_its_outline_which_names_the_field(closing: Closing) -> None:
    api = FakeApi()
    api.put(COMPUTEDOMAINS, an_object(COMPUTEDOMAINS, "d", metadata={"ownerReferences": OWNERS}))
    closing(reflector := watched(api, COMPUTEDOMAINS))
    held: Any = reflector.get("d", "a")
    assert held.metadata.oversized.startswith("metadata.ownerReferences: it takes ")
    assert held.metadata.owner_references is None
    assert reflector.unreadable == frozenset()


def test_a_large_cache_is_held_without_its_selector(closing: Closing) -> None:
    api = FakeApi()
    spec = {"image": "registry.example/a:1", "nodeSelector": {"pool": "x" * 100_000}}
    api.put(WATCHED_CACHES, an_object(WATCHED_CACHES, "c", spec=spec))
    closing(reflector := watched(api, WATCHED_CACHES))
    held: Any = reflector.get("c", "a")
    assert (held.spec.image, held.spec.node_selector) == ("registry.example/a:1", {})
    assert held.oversized.startswith("spec.nodeSelector: it takes ")


def test_an_object_without_an_outline_is_refused_with_its_field(closing: Closing) -> None:
    api, refused = FakeApi(), list[tuple[str, str]]()
    api.put(RUNS, a_run("large", SCOPES))
    api.put(RUNS, a_run("small", []))

    def note(_resource: Resource[Any], entry: ObjectEntry[Any], why: str) -> None:
        refused.append((entry.name, why.partition(":")[0]))

    closing(reflector := watched(api, RUNS, on_refused=note))
    assert refused == [("large", "spec.scopes")]
    assert reflector.unreadable == {("a", "large")}
    assert [run.metadata.name for run in reflector.values()] == ["small"]


def test_an_object_that_grows_stays_as_it_was(closing: Closing) -> None:
    api = FakeApi()
    api.put(RUNS, a_run("r", []))
    closing(reflector := watched(api, RUNS))
    api.put(RUNS, a_run("r", SCOPES))
    until(lambda: reflector.unreadable == {("a", "r")}, "the change is refused")
    held: Any = reflector.get("r", "a")
    assert held.spec.scopes == []
    api.put(RUNS, a_run("r", []))
    until(lambda: reflector.unreadable == frozenset(), "the object is small again")


def test_a_handler_that_fails_does_not_end_the_watch(closing: Closing, caplog: pytest.LogCaptureFixture) -> None:
    api = FakeApi()
    api.put(RUNS, a_run("large", SCOPES))

    def fail(*_: object) -> None:
        raise RuntimeError("no handler")

    with caplog.at_level(logging.ERROR):
        closing(reflector := watched(api, RUNS, on_refused=fail))
    assert "watch handler failed, event dropped" in caplog.messages
    assert reflector.unreadable == {("a", "large")}


def test_events_about_refusals_name_the_field_and_are_few() -> None:
    api = FakeApi()
    events = RefusalEvents(Recorder(api, "gkm.io/test", "test"))
    for number in range(2 * BURST):
        events(RUNS, ObjectEntry("a", f"r-{number}", "1", object()), "spec.scopes: it takes 9 bytes")
    found = api.stored(EVENTS.plural)
    assert BURST <= len(found) < 2 * BURST
    assert (found[0]["reason"], "spec.scopes" in found[0]["note"]) == ("TooLarge", True)
