"""The Events of the controller, each once: lost responses, silent API servers, namespaces, new leaders."""

from collections.abc import Iterator
from threading import Event, Thread
from typing import Any

import pytest
from gkm.kube.errors import ApiError
from gkm.kube.resources import (
    EVENTS,
    GKMCACHES,
    Resource,
)
from support.host.waiting import scaled, until
from support.operator.controller import IMAGE, SOON, Site
from support.operator.images import DIGEST


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.stop.set()
    made.controller.close()


def test_transitions_are_reported_once(site: Site) -> None:
    site.create()
    site.run()
    site.until_verified()
    site.quiet()
    site.restart()
    site.quiet()
    assert event_reasons(site) == ["CosignSuccess"]


def event_reasons(site: Site) -> list[str]:
    return [entry.value["reason"] for page in site.api.list_pages(EVENTS) for entry in page.entries]


def test_a_write_with_a_lost_response_is_still_reported(site: Site) -> None:
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
    until(lambda: event_reasons(site) == ["CosignSuccess"], "it is told")
    site.quiet()
    assert event_reasons(site) == ["CosignSuccess"]
    assert not site.controller._unreported


def test_an_api_server_that_blocks_events_does_not_block_a_new_leader(site: Site) -> None:
    site.create()
    site.run()
    site.until_verified()
    site.quiet()
    site.controller.close()
    site.controller = site.new()
    asked, go = Event(), Event()
    site.api.delete(EVENTS, next(iter(site.api.list_pages(EVENTS))).entries[0].name, "a")
    real = site.api.create

    def create(resource: Resource[Any], value: Any, **options: Any) -> Any:  # noqa: ANN401 -- as create takes it
        if resource is EVENTS:
            asked.set()
            assert go.wait(scaled(30))
        return real(resource, value, **options)

    site.api.create = create  # type: ignore[method-assign]
    assert site.controller.watch(site.stop)
    leading = Thread(target=site.controller.work)
    leading.start()
    leading.join(scaled(10))
    held = leading.is_alive()
    assert asked.wait(scaled(10))
    go.set()
    assert not held
    until(lambda: event_reasons(site) == ["CosignSuccess"], "what its predecessor did not tell is told")


def test_a_namespace_of_many_caches_does_not_block_the_status_of_another(site: Site) -> None:
    names = [f"x{number}" for number in range(30)]
    for name in names:
        site.create(name)
    site.create("y", IMAGE, "b")
    site.run()
    until(lambda: site.api.get(GKMCACHES, "y", "b").status.resolved_digest, "all are verified")
    site.quiet()
    site.controller.close()
    site.report("n", {name: {"state": "Ready", "digest": DIGEST} for name in names})
    site.report("n", {"y": {"state": "Ready", "digest": DIGEST}}, "b")
    site.controller = site.new()
    release, first_of_many, started = Event(), Event(), list[str]()
    real = site.api.apply

    def apply(resource: Resource[Any], value: Any, **more: Any) -> Any:  # noqa: ANN401 -- as apply takes it
        started.append(value["metadata"]["name"])
        if value["metadata"]["namespace"] == "a":
            first_of_many.set()
            assert release.wait(scaled(30))
        return real(resource, value, **more)

    site.api.apply = apply  # type: ignore[method-assign]
    assert site.controller.watch(site.stop)
    site.controller.work()
    try:
        # Two workers: while one waits for a write of namespace a, the other must take the key of namespace b.
        until(lambda: site.api.get(GKMCACHES, "y", "b").status.ready == "1/1", "the other namespace is written")
        assert first_of_many.wait(scaled(10))
        assert [site.status(name).ready for name in names] == ["0/0"] * 30
        assert "y" in started[:3]
    finally:
        release.set()
    # Not counted by calls: a write from an object that the watch has not replaced yet is refused, and repeated.
    until(lambda: {site.status(name).ready for name in names} == {"1/1"}, "all are written")


def test_a_new_leader_after_days_spreads_its_checks_as_after_a_start(
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
