"""CacheSource: one body for the list of tests, the directory of standalone mode and the Kubernetes API."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import yaml
from gkm.hoststate.names import CacheRef
from gkm.kube.api import Api
from gkm.kube.client import connect
from gkm.kube.errors import ApiError
from gkm.kube.resources import CLUSTERGKMCACHES, GKMCACHES, NODES, Json, Resource
from gkm_agent.caches.model import WantedCache
from gkm_agent.interfaces import CacheSource
from gkm_agent.kubernetes.source import KubernetesSource
from gkm_agent.standalone.source import FileSource
from support.agent.fakes import FakeSource
from support.host.waiting import scaled, until
from support.kube.fake_api import FakeApi
from support.kube.our_kinds import status_writer

NODE = "cache-source-contract"
ONE, TWO = CacheRef("default", "cache-source-one"), CacheRef(None, "cache-source-two")
IMAGE, OTHER = "registry.test/team/cache:1", "registry.test/team/cache:2"
STOP_SECONDS = 10.0

Caches = dict[CacheRef, str]
"""{cache: image}"""


@dataclass
class Place:
    """What a source reads: `want` makes these caches the existing ones, `spoil` adds one that nothing can read."""

    source: CacheSource
    want: Callable[[Caches], None]
    spoil: Callable[[], None]
    changed: Event | None = None
    """The wake event of the agent; None for the fake, which has no agent to wake."""


def manifest(ref: CacheRef, image: str) -> Json:
    metadata = {"name": ref.name, **({"namespace": ref.namespace} if ref.namespace else {})}
    return {"apiVersion": "gkm.io/v1alpha1", "kind": ref.kind, "metadata": metadata, "spec": {"image": image}}


def of_a_list() -> Place:
    source = FakeSource()

    def want(caches: Caches) -> None:
        source.wanted = [WantedCache(ref, image) for ref, image in caches.items()]

    def spoil() -> None:
        source.complete = False

    return Place(source, want, spoil)


def of_files(directory: Path) -> Place:
    changed = Event()

    def want(caches: Caches) -> None:
        documents = yaml.safe_dump_all(manifest(ref, image) for ref, image in caches.items())
        whole = directory / "caches.yaml.new"
        whole.write_text(documents, encoding="utf-8")
        whole.rename(directory / "caches.yaml")

    def spoil() -> None:
        (directory / "broken.yaml").write_text("{", encoding="utf-8")

    return Place(FileSource(directory, changed, interval=0.02), want, spoil, changed)


@dataclass
class Objects:
    """The caches of this test in an API server."""

    api: Api
    existing: Caches = field(default_factory=dict)

    def want(self, caches: Caches) -> None:
        for ref in self.existing.keys() - caches.keys():
            self.api.delete(_resource(ref), ref.name, ref.namespace)
        for ref, image in caches.items():
            if ref in self.existing:
                self.api.merge(_resource(ref), ref.name, {"spec": {"image": image}}, ref.namespace)
            else:
                self.api.create(_resource(ref), manifest(ref, image))
        self.existing = dict(caches)

    def spoil(self) -> None:
        broken = manifest(CacheRef("default", "cache-source-broken"), IMAGE)
        self.api.create(_json(GKMCACHES), {**broken, "spec": {"image": 7}})


def _resource(ref: CacheRef) -> Resource[Json]:
    return _json(GKMCACHES if ref.namespace else CLUSTERGKMCACHES)


def _json(resource: Resource[Any]) -> Resource[Json]:
    return Resource(resource.api_version, resource.kind, resource.plural, resource.namespaced, Json)


@contextmanager
def of_objects(api: Api) -> Iterator[Place]:
    api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    changed, objects = Event(), Objects(api)
    try:
        yield Place(KubernetesSource(api, NODE, changed), objects.want, objects.spoil, changed)
    finally:
        with suppress(ApiError):
            objects.want({})
        api.delete(NODES, NODE)


IN_PROCESS = ["list", "files", "fake API"]


@pytest.fixture(params=[*IN_PROCESS, pytest.param("real API", marks=pytest.mark.apiserver)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        match request.param:
            case "list":
                made = of_a_list()
            case "files":
                made = of_files(tmp_path)
            case "fake API":
                made = stack.enter_context(of_objects(FakeApi()))
            case _:
                cluster = request.getfixturevalue("gkm_cluster")
                made = stack.enter_context(of_objects(connect(str(status_writer(cluster)))))
        stack.callback(made.source.stop)
        yield made


def started(place: Place) -> CacheSource:
    place.source.start()
    assert place.source.wait(scaled(60))
    until(lambda: place.source.synced, "the source has read everything")
    return place.source


def found(source: CacheSource) -> Caches:
    """Return the caches of this test: the real API server is shared."""
    return {cache.ref: cache.image for cache in source.caches() if cache.ref.name.startswith("cache-source-")}


def test_without_caches_a_complete_source_is_empty(place: Place) -> None:
    assert found(started(place)) == {}


def test_caches_of_both_scopes_that_exist_before_the_start_are_found(place: Place) -> None:
    place.want({ONE: IMAGE, TWO: OTHER})
    assert found(started(place)) == {ONE: IMAGE, TWO: OTHER}


def test_later_changes_are_found_and_wake_the_agent(place: Place) -> None:
    source = started(place)
    steps: list[Caches] = [{ONE: IMAGE}, {ONE: IMAGE, TWO: IMAGE}, {ONE: OTHER, TWO: IMAGE}, {TWO: IMAGE}, {}]
    for caches in steps:
        if place.changed:
            place.changed.clear()
        place.want(caches)
        assert place.changed is None or place.changed.wait(scaled(60)), "the agent sleeps on"
        until(lambda caches=caches: found(source) == caches, f"{caches} are found")  # type: ignore[misc]
        assert source.synced


def test_a_cache_without_a_controllers_verdict_has_no_digest(place: Place) -> None:
    place.want({ONE: IMAGE})
    (cache,) = [cache for cache in started(place).caches() if cache.ref == ONE]
    assert (cache.digest, cache.pull_secrets) == (None, ())


def test_the_answer_belongs_to_the_caller(place: Place) -> None:
    place.want({ONE: IMAGE})
    source = started(place)
    source.caches().clear()
    assert found(source) == {ONE: IMAGE}


# The schema of a real API server lets no unreadable cache in.
@pytest.mark.parametrize("place", IN_PROCESS, indirect=True)
def test_a_cache_that_cannot_be_read_makes_the_source_incomplete_and_hides_no_other(place: Place) -> None:
    place.want({ONE: IMAGE})
    source = started(place)
    place.spoil()
    until(lambda: not source.synced, "the source is incomplete")
    assert found(source) == {ONE: IMAGE}


def test_a_wait_ends_at_its_time(place: Place) -> None:
    source = started(place)
    began = time.monotonic()
    assert source.wait(0)
    assert time.monotonic() - began < STOP_SECONDS


def test_a_stopped_source_has_its_last_answer_and_stops_again(place: Place) -> None:
    place.want({ONE: IMAGE})
    source = started(place)
    began = time.monotonic()
    source.stop()
    source.stop()
    assert time.monotonic() - began < STOP_SECONDS
    assert found(source) == {ONE: IMAGE}
