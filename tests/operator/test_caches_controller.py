"""The controller against an API in memory: it converges, whatever comes in between."""

import logging
from collections.abc import Iterator
from threading import Event, Thread
from typing import Any

import pytest
from gkm.api.caches import CacheStatus
from gkm.kube.backoff import Backoff
from gkm.kube.errors import ApiError
from gkm.kube.resources import (
    CLUSTERGKMCACHENODES,
    CLUSTERGKMCACHES,
    EVENTS,
    GKMCACHENODES,
    GKMCACHES,
    NODES,
    Json,
    Resource,
)
from gkm_operator.caches.controller import CachesController
from gkm_operator.caches.spacing import Spacing
from gkm_operator.caches.tally import CacheKey
from kube.fake_api import FakeApi
from operator_images import AWAY, DIGEST, GOOD, OTHER, FakeImages
from operator_nodes import kube_node, put
from operator_site import cache, node
from testbed.waiting import until

IMAGE, NEXT = "registry.test/team/cache:1", "registry.test/team/cache:2"
SOON = Backoff(0.001, 0.002)
KEY = CacheKey("a", "x")


class Site:
    def __init__(self) -> None:
        self.api = FakeApi()
        self.images = FakeImages({IMAGE: DIGEST, NEXT: OTHER}, {DIGEST: GOOD, OTHER: GOOD}, {DIGEST: 7})
        self.stop = Event()
        self.controller = self.new()

    def new(self) -> CachesController:
        return CachesController(self.api, self.images, spacing=Spacing(0.0, 0.0), backoff=SOON)

    def run(self) -> None:
        assert self.controller.watch(self.stop)
        self.controller.work()

    def restart(self) -> None:
        self.controller.close()
        self.controller = self.new()
        self.run()

    def create(self, name: str = "x", image: str = IMAGE, namespace: str | None = "a") -> None:
        resource: Resource[Any] = GKMCACHES if namespace else CLUSTERGKMCACHES
        self.api.create(resource, cache(name, image, namespace))

    def report(self, name: str, caches: Json, namespace: str | None = "a") -> None:
        resource: Resource[Any] = GKMCACHENODES if namespace else CLUSTERGKMCACHENODES
        put(self.api, NODES, kube_node(name))
        put(self.api, resource, node(name, caches, namespace))

    def status(self, name: str = "x") -> CacheStatus:
        return self.api.get(GKMCACHES, name, "a").status

    def verified(self, name: str = "x") -> tuple[str, str]:
        found = self.status(name).condition("Verified")
        return (found.status, found.reason) if found else ("", "")

    def until_verified(self, reason: str = "CosignSuccess", name: str = "x") -> CacheStatus:
        until(lambda: self.verified(name)[1] == reason, f"{name} is {reason}")
        return self.status(name)

    def writes(self) -> int:
        plurals = (GKMCACHES.plural, CLUSTERGKMCACHES.plural)
        return sum(1 for verb, plural, _ in list(self.api.calls) if verb == "apply" and plural in plurals)

    def quiet(self) -> None:
        """Wait until every queue is empty and nobody works."""
        queues = (self.controller.verification.queue, self.controller.status)
        until(lambda: all(queue.idle for queue in queues), "nothing is left to do")


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.stop.set()
    made.controller.close()


def test_both_kinds_are_verified_and_summed(site: Site) -> None:
    site.create()
    site.create("x", NEXT, None)
    site.run()
    status = site.until_verified()
    assert (status.resolved_digest, status.size_bytes) == (DIGEST, 7)
    until(lambda: site.api.get(CLUSTERGKMCACHES, "x").status.resolved_digest == OTHER, "the other kind too")
    assert ("verify", IMAGE, DIGEST, "a") in site.images.asked
    assert ("verify", NEXT, OTHER, "None") in site.images.asked
    site.report("n", {"x": {"state": "Ready", "digest": DIGEST}})
    site.report("n", {"x": {"state": "Ready", "digest": OTHER}}, None)
    until(lambda: site.status().ready == "1/1", "the node is counted")
    until(lambda: site.api.get(CLUSTERGKMCACHES, "x").status.ready == "1/1", "for both")


def test_nothing_is_written_before_everything_was_listed(site: Site) -> None:
    site.create()
    site.report("n", {"x": {"state": "Ready", "digest": DIGEST}})
    go = Event()
    away = ApiError(503, "", "away")
    site.api.fault = lambda verb, plural: (
        away if (verb, plural) == ("list", "gkmcachenodes") and not go.is_set() else None
    )
    started = Thread(target=site.run)
    started.start()
    until(lambda: ("list", "gkmcachenodes", "") in list(site.api.calls), "it tried")
    assert not site.controller.synced
    assert site.writes() == 0
    go.set()
    started.join(30)
    until(lambda: site.status().ready == "1/1", "the first write is whole")
    assert site.writes() == 1


def test_what_does_not_change_is_not_written(site: Site) -> None:
    site.create()
    site.run()
    site.until_verified()
    site.quiet()
    before = site.writes()
    site.report("n", {"other": {"state": "Ready"}})
    site.api.merge(GKMCACHES, "x", {"metadata": {"labels": {"a": "1"}}}, "a")
    site.quiet()
    site.restart()
    until(lambda: len(site.images.asked) >= 4, "it verified again")
    site.quiet()
    assert site.writes() == before


def test_a_restart_keeps_the_digest_though_the_tag_moved_and_verifies_again(site: Site) -> None:
    site.create()
    site.run()
    site.until_verified()
    site.images.digests[IMAGE] = OTHER
    site.images.asked.clear()
    site.restart()
    until(lambda: ("verify", IMAGE, DIGEST, "a") in site.images.asked, "it verified again")
    site.quiet()
    assert site.status().resolved_digest == DIGEST
    assert ("resolve", IMAGE) not in site.images.asked


def test_a_policy_that_changed_shows_after_a_restart(site: Site) -> None:
    site.create()
    site.run()
    site.until_verified()
    del site.images.verdicts[DIGEST]
    site.restart()
    site.until_verified("SignatureMissing")


def test_a_registry_that_comes_back_ends_the_doubt(site: Site) -> None:
    site.images.digests[IMAGE] = AWAY
    site.create()
    site.run()
    status = site.until_verified("RegistryUnavailable")
    assert status.resolved_digest is None
    site.images.digests[IMAGE] = DIGEST
    assert site.until_verified().resolved_digest == DIGEST


def test_the_pauses_of_an_image_that_failed_are_not_those_of_the_next(site: Site) -> None:
    del site.images.digests[IMAGE]
    site.create()
    site.run()
    queue = site.controller.verification.queue
    until(lambda: queue._failures.get(KEY, 0) > 5, "it was tried again and again")
    queue._backoff = Backoff(60.0, 60.0)
    site.images.digests[NEXT] = AWAY
    site.api.merge(GKMCACHES, "x", {"spec": {"image": NEXT}}, "a")
    site.until_verified("RegistryUnavailable")
    until(lambda: queue._failures.get(KEY) == 1, "it has failed once")


def test_a_new_image_is_resolved_anew(site: Site) -> None:
    site.create()
    site.run()
    site.until_verified()
    site.api.merge(GKMCACHES, "x", {"spec": {"image": NEXT}}, "a")
    until(lambda: site.status().resolved_digest == OTHER, "the new image is resolved")
    assert site.status().observed_generation == 2


def test_a_cache_that_was_made_again_starts_anew(site: Site) -> None:
    site.create()
    site.run()
    site.until_verified()
    site.images.digests[IMAGE] = OTHER
    site.api.delete(GKMCACHES, "x", "a")
    site.create()
    assert site.until_verified().resolved_digest == OTHER
    site.quiet()
    assert len(site.controller.verification._outcomes) == 1


def test_a_deleted_cache_is_forgotten(site: Site) -> None:
    site.create()
    site.run()
    site.until_verified()
    site.api.delete(GKMCACHES, "x", "a")
    until(lambda: not site.controller.verification._outcomes, "it is forgotten")
    site.report("n", {"x": {"state": "Deleting", "digest": DIGEST}})
    site.quiet()


def test_a_cache_that_is_being_deleted_is_not_looked_up(site: Site) -> None:
    meta = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    site.api.create(GKMCACHES, cache("x", IMAGE, "a", **meta))
    site.run()
    site.quiet()
    assert site.images.asked == []


def test_a_refused_write_is_tried_again(site: Site) -> None:
    refusals = iter([ApiError(500, "", "etcd"), ApiError(409, "Conflict", "")])
    site.api.fault = lambda verb, _: next(refusals, None) if verb == "apply" else None
    site.controller.status._backoff = SOON
    site.create()
    site.run()
    site.until_verified()


def test_watches_that_break_and_are_forgotten_lose_nothing(site: Site) -> None:
    site.create()
    site.run()
    site.until_verified()
    for reflector in site.controller._reflectors:
        reflector._backoff = SOON
    for number in range(6):
        state = "Ready" if number % 2 else "Failed"
        site.report(f"n{number}", {"x": {"state": state, "digest": DIGEST, "reason": "DiskFull"}})
        if number == 3:
            site.api.forget_history()
        site.api.cut(ApiError(0, "Broken", "cut"))
    until(lambda: site.status().ready == "3/6", "all six are counted")
    assert site.status().failed_node_conditions == {"DiskFull": ["n0", "n2", "n4"]}


def test_a_cache_that_cannot_be_read_any_more_is_kept_as_it_was(site: Site) -> None:
    site.create()
    site.run()
    site.until_verified()
    asked = len(site.images.asked)
    whole = Resource("gkm.io/v1alpha1", "GKMCache", "gkmcaches", namespaced=True, type=dict[str, Any])
    site.api.merge(whole, "x", {"spec": {"image": 7}}, "a")
    site.api.forget_history()
    site.api.cut()
    until(lambda: site.controller._caches.unreadable, "it is known to be unreadable")
    site.quiet()
    assert len(site.controller.verification._outcomes) == 1
    site.api.merge(whole, "x", {"spec": {"image": IMAGE}}, "a")
    until(lambda: not site.controller._caches.unreadable, "it is read again")
    site.quiet()
    assert len(site.images.asked) == asked


def test_what_is_logged_of_a_cache_says_which_in_one_form(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    site.images.digests[IMAGE] = AWAY
    site.create()
    site.create("x", NEXT, None)
    site.run()
    site.until_verified("RegistryUnavailable")
    until(lambda: site.api.get(CLUSTERGKMCACHES, "x").status.resolved_digest == OTHER, "the other is verified")
    looks = [vars(record) for record in caplog.records if record.getMessage() == "looked at image"]
    assert {look["cache"] for look in looks} == {"GKMCache a/x", "ClusterGKMCache x"}
    assert all(("digest" in look) == (look["cache"] != "GKMCache a/x") for look in looks)
    tries = [vars(record) for record in caplog.records if record.getMessage() == "tried again later"]
    # A status that is written twice before its watch has told is a conflict, and tried again too.
    assert {(tried["key"], tried["why"]) for tried in tries if tried["queue"] == "verify"} == {
        ("GKMCache a/x", "RegistryUnavailable: the registry does not answer")
    }


def test_transitions_are_told_once(site: Site) -> None:
    site.create()
    site.run()
    site.until_verified()
    site.quiet()
    site.restart()
    site.quiet()
    assert told(site) == ["CosignSuccess"]


def told(site: Site) -> list[str]:
    return [entry.value["reason"] for page in site.api.list_pages(EVENTS) for entry in page.entries]


def test_a_write_whose_answer_is_lost_is_told_all_the_same(site: Site) -> None:
    real = site.api.apply
    lost: list[Any] = []

    def apply(*arguments: Any, **more: Any) -> Any:  # noqa: ANN401 -- as apply takes it
        answer = real(*arguments, **more)
        if not lost:
            lost.append(answer)
            raise ApiError(0, "Unreachable", "the answer is lost")
        return answer

    site.api.apply = apply  # type: ignore[method-assign]
    site.controller.status._backoff = SOON
    site.create()
    site.run()
    until(lambda: told(site) == ["CosignSuccess"], "it is told")
    site.quiet()
    assert told(site) == ["CosignSuccess"]
    assert not site.controller._untold


def test_an_api_server_that_takes_no_event_holds_up_no_new_leader(site: Site) -> None:
    site.create()
    site.run()
    site.until_verified()
    site.quiet()
    site.controller.close()
    site.controller = site.new()
    asked, go = Event(), Event()
    site.api.delete(EVENTS, next(iter(site.api.list_pages(EVENTS))).entries[0].name, "a")
    real = site.api.create

    def create(resource: Resource[Any], value: Any) -> Any:  # noqa: ANN401 -- as create takes it
        if resource is EVENTS:
            asked.set()
            assert go.wait(30)
        return real(resource, value)

    site.api.create = create  # type: ignore[method-assign]
    assert site.controller.watch(site.stop)
    leading = Thread(target=site.controller.work)
    leading.start()
    leading.join(10)
    held = leading.is_alive()
    assert asked.wait(10)
    go.set()
    assert not held
    until(lambda: told(site) == ["CosignSuccess"], "what its predecessor did not tell is told")


def test_a_namespace_of_many_caches_holds_up_no_status_of_another(site: Site) -> None:
    names = [f"x{number}" for number in range(30)]
    for name in names:
        site.create(name)
    site.create("y", IMAGE, "b")
    site.run()
    until(lambda: site.api.get(GKMCACHES, "y", "b").status.resolved_digest, "all are looked at")
    site.quiet()
    site.controller.close()
    site.report("n", {name: {"state": "Ready", "digest": DIGEST} for name in names})
    site.report("n", {"y": {"state": "Ready", "digest": DIGEST}}, "b")
    site.controller = site.new()
    assert site.controller.watch(site.stop)
    site.api.calls.clear()
    site.controller.work()
    until(lambda: site.writes() == 31, "all are written")
    written = [name for verb, plural, name in site.api.calls if (verb, plural) == ("apply", GKMCACHES.plural)]
    assert "y" in written[:6]


def test_who_takes_over_after_days_spreads_its_looks_as_after_a_start(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.create()
    site.create("y")
    site.run()
    site.until_verified()
    site.until_verified(name="y")
    site.quiet()
    site.controller.close()
    site.controller = site.new()
    assert site.controller.watch(site.stop)
    assert not len(site.controller.verification.queue)
    places: list[float] = []
    monkeypatch.setattr(site.controller.verification.queue, "add", lambda _, after=0.0: places.append(after))
    site.controller.work()
    assert len(places) == 2
    assert max(places) > 0


def test_stopping_while_it_starts_ends_the_start(site: Site) -> None:
    site.api.fault = lambda _verb, _plural: ApiError(0, "", "away")
    site.stop.set()
    assert not site.controller.watch(site.stop)
