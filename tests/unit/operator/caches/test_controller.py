"""The controller against an API in memory: it converges, whatever comes in between."""

import logging
from collections.abc import Iterator
from threading import Event, Thread
from typing import Any

import pytest
from gkm.hoststate.pacing import Backoff
from gkm.kube.errors import ApiError
from gkm.kube.resources import (
    CLUSTERGKMCACHES,
    GKMCACHES,
    Resource,
)
from gkm_operator import metrics
from support.host.waiting import scaled, until
from support.kube.listing import reflector_of
from support.operator.controller import IMAGE, KEY, NEXT, SOON, Site
from support.operator.deployment import cache
from support.operator.images import AWAY, DIGEST, OTHER


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
    started.join(scaled(30))
    until(lambda: site.status().ready == "1/1", "the first write is whole")
    assert site.writes() == 1


def test_an_unchanged_status_is_not_written(site: Site) -> None:
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


def test_a_restart_preserves_the_digest_of_a_moved_tag_and_verifies_it_again(site: Site) -> None:
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
    # An attempt for the first image that ends meanwhile counts too.
    until(lambda: 1 <= queue._failures.get(KEY, 0) <= 2, "it has failed once")


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


def test_caches_are_counted_by_the_reason_of_ready(site: Site) -> None:
    def counts() -> dict[str, float]:
        (family,) = metrics.CACHES.collect()
        return {sample.labels["ready"]: sample.value for sample in family.samples if sample.value}

    before = counts()
    site.create()
    site.run()
    site.until_verified()
    wanted = before | {"NoMatchingNodes": before.get("NoMatchingNodes", 0) + 1}
    until(lambda: counts() == wanted, "the cache to be counted")
    site.api.delete(GKMCACHES, "x", "a")
    until(lambda: counts() == before, "it is not counted any more")


def test_a_cache_in_deletion_is_not_resolved(site: Site) -> None:
    site.api.create(GKMCACHES, cache("x", IMAGE, "a", finalizers=["test/hold"]))
    site.api.delete(GKMCACHES, "x", "a")
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
    for reflector in site.controller.reflectors():
        reflector_of(reflector)._backoff = SOON
    for number in range(6):
        state = "Ready" if number % 2 else "Failed"
        site.report(f"n{number}", {"x": {"state": state, "digest": DIGEST, "reason": "DiskFull"}})
        if number == 3:
            site.api.forget_history()
        site.api.cut(ApiError(0, "Broken", "cut"))
    until(lambda: site.status().ready == "3/6", "all six are counted")
    assert site.status().failed_node_conditions == {"DiskFull": ["n0", "n2", "n4"]}


def test_an_undecodable_cache_keeps_its_last_state(site: Site) -> None:
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


def test_log_lines_name_a_cache_in_one_form(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    site.images.digests[IMAGE] = AWAY
    site.create()
    site.create("x", NEXT, None)
    site.run()
    site.until_verified("RegistryUnavailable")
    until(lambda: site.api.get(CLUSTERGKMCACHES, "x").status.resolved_digest == OTHER, "the other is verified")
    looks = [vars(record) for record in caplog.records if record.getMessage() == "signatures of a cache image checked"]
    assert {look["cache"] for look in looks} == {"GKMCache a/x", "ClusterGKMCache x"}
    assert all(("digest" in look) == (look["cache"] != "GKMCache a/x") for look in looks)
    tries = [vars(record) for record in caplog.records if record.getMessage() == "reconcile retry scheduled"]
    # A status that is written twice before its watch has told is a conflict, and tried again too.
    assert {(tried["key"], tried["why"]) for tried in tries if tried["queue"] == "verify"} == {
        ("GKMCache a/x", "RegistryUnavailable: the registry does not answer")
    }


def test_stopping_while_it_starts_ends_the_start(site: Site) -> None:
    site.api.fault = lambda _verb, _plural: ApiError(0, "", "away")
    site.stop.set()
    assert not site.controller.watch(site.stop)
