"""After any faults between an API and a reflector, its cache and its reports equal a full list."""

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Generic, TypeVar

from gkm.api.caches import GKMCache
from gkm.hoststate.pacing import Backoff
from gkm.kube.api import EVERYTHING, ListSelector, Watch, WatchEvent
from gkm.kube.errors import NO_RESPONSE, UNREADABLE, ApiError
from gkm.kube.reflector import Reflector
from gkm.kube.resources import GKMCACHES, Json, Resource
from hypothesis import given
from hypothesis import strategies as st
from support.kube.fake_api import FakeApi
from support.kube.fake_watch import FakeWatch

THIN: Resource[Json] = Resource("gkm.io/v1alpha1", "GKMCache", "gkmcaches", namespaced=True, type=Json)
AT_ONCE = Backoff(0.0001, 0.0002)
NAMES = [f"x{number}" for number in range(6)]
ERRORS = {
    "broken": ApiError(NO_RESPONSE, "Broken", "the watch broke off"),
    "gone": ApiError(410, "Expired", "too old resource version"),
    "busy": ApiError(429, "TooManyRequests", "later"),
    "ill": ApiError(500, "InternalError", "etcd"),
    "unreadable": ApiError(NO_RESPONSE, UNREADABLE, "cannot be read"),
}
Key = tuple[str, str]
T = TypeVar("T")


class Ledger:
    """A handler that applies every change: `old` must equal the `new` of the last one."""

    def __init__(self) -> None:
        self.known: dict[Key, GKMCache] = {}
        self.wrong: list[str] = []

    def __call__(self, old: GKMCache | None, new: GKMCache | None) -> None:
        cache = new or old
        assert cache
        key = (cache.metadata.namespace, cache.metadata.name)
        if self.known.get(key) != old:
            self.wrong.append(f"{key}: told {old} as the old one, which was {self.known.get(key)}")
        if old is not None and old == new:
            self.wrong.append(f"{key}: told twice")
        if new is None:
            del self.known[key]
        else:
            self.known[key] = new


class Storm:
    """Does the next thing of a script whenever the reflector and the API touch: that is between any two steps."""

    def __init__(self, script: list[tuple[str, int]]) -> None:
        self.api = FakeApi()
        self.over = False
        self.calm: Callable[[], None] = lambda: None
        self._script = iter(script)
        self._busy = False
        self._serial = 0
        self._spoiled: dict[str, bool] = {}
        self._acts: dict[str, Callable[[str], None]] = {
            "put": self._put,
            "spoil": lambda name: self._put(name, image=7),
            "delete": self._delete,
            "again": self._again,
            "compact": lambda _: self.api.forget_history(),
            "bookmark": lambda _: self.api.bookmark(),
            "end": lambda _: self.api.cut(),
        }

    def step(self) -> ApiError | None:
        """Do one step; return the error that ends the request in progress, if any."""
        if self._busy:
            return None
        self._busy = True
        try:
            word, number = next(self._script, ("over", 0))
            self.over = self.over or word == "over"
            if word in self._acts:
                self._acts[word](NAMES[number % len(NAMES)])
            elif word.startswith("cut "):
                self.api.cut(ERRORS[word.removeprefix("cut ")])
            return ERRORS.get(word)
        finally:
            self._busy = False

    def _put(self, name: str, image: object = None) -> None:
        self._serial += 1
        spec = {"image": image or f"i{self._serial}"}
        cache = {
            "apiVersion": "gkm.io/v1alpha1",
            "kind": "GKMCache",
            "metadata": {"name": name, "namespace": "a"},
            "spec": spec,
        }
        try:
            self.api.merge(THIN, name, {"spec": spec}, "a")
        except ApiError:
            self.api.create(THIN, cache)

    def _delete(self, name: str) -> None:
        with suppress(ApiError):
            self.api.delete(THIN, name, "a")

    def _again(self, name: str) -> None:
        """Delete and make anew: another object of the same name."""
        self._delete(name)
        self._put(name)


def stormy(storm: Storm) -> FakeApi:
    """Let a storm do something before every call, every page and every event of its API."""
    api = storm.api
    api.fault = lambda _verb, _plural: storm.step()
    watching = api.watch

    def watch(resource: Resource[T], resource_version: str, selector: ListSelector = EVERYTHING) -> Watch[T]:
        return Interrupted(watching(resource, resource_version, selector), storm)

    api.watch = watch  # type: ignore[method-assign,assignment]
    return api


class Interrupted(Generic[T]):
    """A watch with a step of the storm before and after each of its events; when nothing is left, all ends."""

    def __init__(self, inner: FakeWatch[T], storm: Storm) -> None:
        self._inner = inner
        self._storm = storm

    def __iter__(self) -> Iterator[WatchEvent[T]]:
        while True:
            self._raise()
            if self._inner.idle:
                if self._storm.over:
                    self._storm.calm()
                continue
            event = next(self._inner, None)
            if event is None:
                return
            self._raise()
            yield event

    def close(self) -> None:
        self._inner.close()

    def _raise(self) -> None:
        if error := self._storm.step():
            raise error


def truth(api: FakeApi) -> tuple[dict[Key, GKMCache], set[Key]]:
    """Return what a full list says: what can be read, and the keys of what cannot."""
    pages = list(api.list_pages(GKMCACHES))
    return (
        {entry.key: entry.value for page in pages for entry in page.entries},
        {key for page in pages for key in page.unreadable},
    )


WORDS = ["put"] * 6 + ["spoil", "delete", "delete", "again", "compact", "bookmark", "end", "end", "pass"]
WORDS += [*ERRORS, *(f"cut {word}" for word in ERRORS)]
STEPS = 100


def script(seed: int) -> list[tuple[str, int]]:
    """Return what a storm does; Hypothesis' own lists are short and much alike, and a defect needs three or four words
    in a row."""
    chance = random.Random(seed)
    return [(chance.choice(WORDS), chance.randrange(len(NAMES))) for _ in range(STEPS)]


@given(st.integers(0, 2**63))
def test_after_any_faults_cache_and_reports_equal_a_full_list(seed: int) -> None:
    storm = Storm(script(seed))
    api = stormy(storm)
    ledger = Ledger()
    reflector = Reflector(api, GKMCACHES, ledger, backoff=AT_ONCE)
    storm.calm = reflector.close
    reflector.run()

    wanted, unreadable = truth(api)
    held = {(cache.metadata.namespace, cache.metadata.name): cache for cache in reflector.values()}
    assert ledger.wrong == []
    assert held == ledger.known
    assert {key: cache for key, cache in held.items() if key not in unreadable} == wanted
    # What cannot be read stays as it was last read, or is not known at all.
    assert held.keys() <= wanted.keys() | unreadable
    assert reflector.unreadable == unreadable
    assert reflector.synced.is_set()
