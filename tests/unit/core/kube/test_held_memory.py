"""A user cannot make a process hold more than 4 KiB of one watched object, whatever the object is filled with."""

import gc
import json
import logging
import tracemalloc
from typing import Any

import pytest
from gkm.kube import decoding
from gkm.kube.api import ObjectEntry
from gkm.kube.reflector import Reflector
from gkm.kube.resources import WATCHED_CACHES, WATCHED_CLUSTER_CACHES, Json, Resource
from support.kube.fake_api import FakeApi
from support.kube.grown_objects import grown_objects
from support.kube.reflectors import Watched, all_watched

LIMIT = 4 << 10
WARM_UP, OBJECTS = 2, 4
"""The decoder, and checks of types, remember something of the first objects."""
OF_A_CACHE = 1536
"""20,000 caches then take 30 MiB, and an agent, which takes 70 without caches, 100 of its 128 MiB."""
DROPPED = tuple(f"metadata.{name}" for name in ("annotations", "ownerReferences", "finalizers", "managedFields"))
"""The fields that are not held of any object, whoever writes it."""


@pytest.fixture(autouse=True)
def objects_of_other_tests_are_not_collected() -> None:
    """Let each collection look at what the test makes alone: a worker holds a million other objects by then."""
    gc.collect()
    gc.freeze()


class Held:
    """A reflector that gets objects as a watch does, without a thread."""

    def __init__(self, resource: Resource[Any]) -> None:
        self.refused: list[str] = []
        self.reflector = Reflector(FakeApi(), resource, lambda _old, _new: None, on_refused=self._refused)
        self._resource = resource

    def bytes_of_each(self, objects: list[dict[str, Any]]) -> float:
        """Receive objects; return the bytes that each but the first ones takes.

        The smaller of two halves: a table of the interpreter that grows does so in one of them.
        """
        lines = [json.dumps({"type": "ADDED", "object": value}).encode() for value in objects]
        tracemalloc.start()
        self._receive(lines[:WARM_UP])
        middle = (WARM_UP + len(lines)) // 2
        taken = [self._bytes_of_each(lines[WARM_UP:middle]), self._bytes_of_each(lines[middle:])]
        tracemalloc.stop()
        return min(taken)

    def _bytes_of_each(self, lines: list[bytes]) -> float:
        before = tracemalloc.get_traced_memory()[0]
        self._receive(lines)
        return (tracemalloc.get_traced_memory()[0] - before) / len(lines)

    def _receive(self, lines: list[bytes]) -> None:
        for line in lines:
            self.reflector._apply(decoding.event(self._resource, line))
        gc.collect()

    def _refused(self, _resource: Resource[Any], _entry: ObjectEntry[Any], why: str) -> None:
        self.refused.append(why)


@pytest.mark.parametrize("watched", all_watched(), ids=str)
def test_no_field_that_users_fill_takes_memory(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    found: dict[str, str] = {}
    for several in zip(*(grown_objects(watched.resource, number) for number in range(OBJECTS)), strict=True):
        field = several[0][0]
        if watched.resource.unbounded and field not in DROPPED:
            continue
        held = Held(watched.resource)
        size = held.bytes_of_each([value for _, value in several])
        if size > LIMIT:
            found[field] = f"{size:.0f} bytes"
        elif held.reflector.unreadable and not held.refused:
            found[field] = "refused without a word"
    assert found == {}


@pytest.mark.parametrize("status", [{}, {"status": {"totalNodes": 0}}], ids=["no status", "an empty status"])
@pytest.mark.parametrize("resource", [WATCHED_CACHES, WATCHED_CLUSTER_CACHES], ids=lambda found: str(found.kind))
def test_a_cache_without_a_state_takes_little_more_than_its_texts(resource: Resource[Any], status: Json) -> None:
    policy = {"mode": "Pinned", "interval": "15m"}
    spec = {"image": "registry.example/team/cache:1", "nodeSelector": {"pool": "none"}, "updatePolicy": policy}
    namespace = {"namespace": "team"} if resource.namespaced else {}
    objects = [
        {
            "apiVersion": "gkm.io/v1alpha1",
            "kind": resource.kind,
            "metadata": {
                **namespace,
                "name": f"cache-{number}",
                "uid": f"{number:036}",
                "resourceVersion": f"{number}",
            },
            "spec": spec,
            **status,
        }
        for number in range(100, 200)
    ]
    held = Held(resource)
    assert held.bytes_of_each(objects) <= OF_A_CACHE
    assert not held.refused
