"""Two leaders for a moment: what an old one found out never takes the place of what a newer one wrote."""

from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest
from gkm.api.caches import CacheStatus
from gkm.hoststate.pacing import Backoff
from gkm.kube.errors import ApiError
from gkm.kube.resources import EVENTS, GKMCACHES
from gkm_operator.caches.controller import CachesController
from gkm_operator.caches.throttling import StatusInterval
from support.host.waiting import scaled, until
from support.kube.fake_api import FakeApi
from support.operator.deployment import cache
from support.operator.images import DIGEST, GOOD, OTHER, UNSIGNED, FakeImages

IMAGE, NEXT = "registry.test/team/cache:1", "registry.test/team/cache:2"
SOON = Backoff(0.001, 0.002)
TRACK = {"updatePolicy": {"mode": "Track", "interval": "15m"}}


class HeldImages(FakeImages):
    """Images whose results arrive when `go` is set: results from before a process was stopped, which are outdated."""

    def __init__(self, *known: Any) -> None:  # noqa: ANN401 -- as FakeImages takes it
        super().__init__(*known)
        self.go, self.holds = Event(), False
        self.held = Event()

    def size(self, image: str, digest: str) -> int:
        if self.holds:
            self.held.set()
            assert self.go.wait(scaled(30))
        return super().size(image, digest)


class Leaders:
    """An API server and processes that believe to lead."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.stop = Event()
        self.running: list[CachesController] = []
        self.held: list[HeldImages] = []

    def lead(self, images: FakeImages) -> CachesController:
        controller = CachesController(self.api, images, status_interval=StatusInterval(0.0, 0.0), backoff=SOON)
        controller.status._backoff = SOON
        self.running.append(controller)
        assert controller.watch(self.stop)
        controller.work()
        return controller

    def hold(self, *known: Any) -> HeldImages:  # noqa: ANN401 -- as FakeImages takes it
        images = HeldImages(*known)
        images.holds = True
        self.held.append(images)
        return images

    def create(self, **spec: Any) -> None:  # noqa: ANN401 -- JSON
        made = cache("x", IMAGE, "a")
        self.api.create(GKMCACHES, made | {"spec": made["spec"] | spec})

    def status(self) -> CacheStatus:
        return self.api.get(GKMCACHES, "x", "a").status

    def event_reasons(self) -> list[str]:
        return sorted(entry.value["reason"] for page in self.api.list_pages(EVENTS) for entry in page.entries)

    def quiet(self) -> None:
        queues = [queue for each in self.running for queue in (each.verification.queue, each.status)]
        until(lambda: not any(queue._running for queue in queues), "nobody works")

    def close(self) -> None:
        self.stop.set()
        for images in self.held:
            images.go.set()
        for controller in self.running:
            controller.close()


@pytest.fixture
def leaders() -> Iterator[Leaders]:
    made = Leaders()
    yield made
    made.close()


def test_a_result_for_an_older_image_is_not_written(leaders: Leaders) -> None:
    leaders.create()
    old = leaders.hold({IMAGE: DIGEST, NEXT: OTHER}, {DIGEST: GOOD, OTHER: GOOD})
    leaders.lead(old)
    assert old.held.wait(scaled(30))
    leaders.api.merge(GKMCACHES, "x", {"spec": {"image": NEXT}}, "a")
    leaders.lead(FakeImages({IMAGE: DIGEST, NEXT: OTHER}, {DIGEST: GOOD, OTHER: GOOD}))
    until(lambda: leaders.status().resolved_digest == OTHER, "the new leader has answered")
    old.go.set()
    until(lambda: ("verify", NEXT, OTHER, "a") in old.asked, "the old one looks at the new image")
    leaders.quiet()
    assert (leaders.status().image, leaders.status().resolved_digest) == (NEXT, OTHER)


def test_an_older_result_for_a_tracked_tag_is_discarded(leaders: Leaders) -> None:
    leaders.create(**TRACK)
    old = leaders.hold({IMAGE: DIGEST}, {DIGEST: GOOD, OTHER: GOOD})
    leaders.lead(old)
    assert old.held.wait(scaled(30))
    leaders.lead(FakeImages({IMAGE: OTHER}, {OTHER: GOOD}))
    until(lambda: leaders.status().resolved_digest == OTHER, "the tag has moved, and the new leader follows")
    # It sees that too, and when its look ends, that is the older one.
    seen = leaders.running[0]._caches
    until(lambda: (found := seen.get("x", "a")) and found.status.resolved_digest == OTHER, "the old one has seen it")
    old.digests[IMAGE] = OTHER
    old.go.set()
    until(lambda: ("verify", IMAGE, OTHER, "a") in old.asked, "it looks anew")
    leaders.quiet()
    assert leaders.status().resolved_digest == OTHER
    assert "Updated" not in leaders.event_reasons()


def test_a_stalled_leader_cannot_overwrite_a_status_it_has_not_read(leaders: Leaders) -> None:
    leaders.create()
    api = leaders.api
    first = leaders.lead(FakeImages({IMAGE: DIGEST, NEXT: OTHER}, {DIGEST: GOOD, OTHER: GOOD}))
    until(lambda: leaders.status().resolved_digest == DIGEST, "it is verified")
    leaders.quiet()
    # Its watch is cut and does not come back: as with a process that wakes up, what it knows is old.
    for reflector in first.reflectors():
        reflector.close()
    api.merge(GKMCACHES, "x", {"spec": {"image": NEXT}}, "a")
    leaders.lead(FakeImages({NEXT: OTHER}, {OTHER: GOOD}))
    until(lambda: leaders.status().resolved_digest == OTHER, "the new leader has answered")
    leaders.quiet()
    refused: list[ApiError] = []
    real = api.apply

    def noted(*arguments: Any, **more: Any) -> Any:  # noqa: ANN401 -- as apply takes it
        try:
            return real(*arguments, **more)
        except ApiError as error:
            refused.append(error)
            raise

    api.apply = noted  # type: ignore[method-assign]
    first.verification._images = FakeImages({IMAGE: DIGEST}, {DIGEST: UNSIGNED})
    first.verification.recheck_all()
    until(lambda: any(error.conflict for error in refused), "its answer is refused by the API server")
    assert (leaders.status().image, leaders.status().resolved_digest) == (NEXT, OTHER)
    verified = leaders.status().condition("Verified")
    assert verified is not None
    assert verified.status == "True"
    assert "SignatureMissing" not in leaders.event_reasons()


def test_a_second_leader_repeats_no_event(leaders: Leaders) -> None:
    leaders.create()
    leaders.lead(FakeImages({IMAGE: DIGEST}, {DIGEST: GOOD}))
    until(lambda: "CosignSuccess" in leaders.event_reasons(), "it is told")
    second = FakeImages({IMAGE: DIGEST}, {DIGEST: GOOD})
    leaders.lead(second)
    until(lambda: second.asked, "the second looks too")
    leaders.quiet()
    assert leaders.event_reasons() == ["CosignSuccess"]


def test_a_change_to_track_is_acted_on_at_once(leaders: Leaders) -> None:
    leaders.create()
    images = FakeImages({IMAGE: DIGEST}, {DIGEST: GOOD, OTHER: GOOD})
    leaders.lead(images)
    until(lambda: leaders.status().resolved_digest == DIGEST, "it is verified")
    images.digests[IMAGE] = OTHER
    leaders.api.merge(GKMCACHES, "x", {"spec": TRACK}, "a")
    until(lambda: leaders.status().resolved_digest == OTHER, "the tag is followed")
    until(lambda: leaders.event_reasons() == ["CosignSuccess", "Updated"], "that is told")
