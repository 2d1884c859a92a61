"""What /healthz and /readyz say, and for whom they stay quiet."""

from http import HTTPStatus
from threading import Event, Thread

import pytest
from gkm.probes.messages import Page
from gkm_agent.reconcile.reconciler import Reconciler
from gkm_agent.telemetry import health
from gkm_agent.telemetry.health import STUCK_SECONDS, Heartbeat, Vitals
from support.agent.node import Node
from support.host.waiting import scaled, until

GOOD = Vitals(idle=1.0, succeeded=True, listed=True, gpus=True)


def asked(vitals: Vitals) -> dict[str, Page]:
    served = health.pages(lambda: vitals, lambda: Page(b"metrics"))
    return {path: make() for path, make in served.items()}


def test_a_loop_with_recent_passes_is_healthy_and_ready() -> None:
    answers = asked(GOOD)

    assert answers["/healthz"] == Page(b"ok\n")
    assert answers["/readyz"] == Page(b"ok\n")
    assert answers["/metrics"].body == b"metrics"


def test_a_loop_that_is_stuck_is_neither() -> None:
    answers = asked(Vitals(idle=STUCK_SECONDS + 1, succeeded=True, listed=True, gpus=True))

    assert answers["/healthz"] == Page(b"no reconcile pass has ended for 601 s\n", HTTPStatus.SERVICE_UNAVAILABLE)
    assert answers["/readyz"].status is HTTPStatus.SERVICE_UNAVAILABLE


@pytest.mark.parametrize(
    ("vitals", "why"),
    [
        (Vitals(1.0, None, listed=True, gpus=True), "no reconcile pass has ended yet"),
        (Vitals(1.0, False, listed=True, gpus=True), "the last reconcile pass failed; the log has the cause"),  # noqa: FBT003
        (Vitals(1.0, True, listed=False, gpus=True), "the source has not listed all caches yet"),  # noqa: FBT003
        (Vitals(1.0, True, listed=True, gpus=False), "the GPUs have not been read yet"),  # noqa: FBT003
    ],
)
def test_a_problem_that_a_restart_does_not_solve_makes_it_unready_and_never_unhealthy(vitals: Vitals, why: str) -> None:
    answers = asked(vitals)

    assert answers["/healthz"].status is HTTPStatus.OK
    assert answers["/readyz"] == Page(f"{why}\n".encode(), HTTPStatus.SERVICE_UNAVAILABLE)


def test_idle_time_counts_from_the_end_of_the_last_pass() -> None:
    now = 100.0
    heartbeat = Heartbeat(lambda: now)
    now = 130.0
    assert heartbeat.vitals(listed=True, gpus=True) == Vitals(30.0, None, listed=True, gpus=True)
    heartbeat.beat(succeeded=False)
    now = 131.0
    assert heartbeat.vitals(listed=False, gpus=True) == Vitals(1.0, succeeded=False, listed=False, gpus=True)


def test_a_failed_pass_is_a_heartbeat_without_success(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Event()
    broken.set()
    reconcile = Reconciler.reconcile

    def sometimes(agent: Reconciler) -> bool:
        if broken.is_set():
            raise OSError("the disk does not answer")
        return reconcile(agent)

    monkeypatch.setattr(Reconciler, "reconcile", sometimes)
    monkeypatch.setattr("gkm_agent.reconcile.reconciler.RECONCILE_SECONDS", 0.05)
    stop = Event()
    loop = Thread(target=node.agent.run, args=(stop,))
    loop.start()
    try:
        until(lambda: node.agent._heartbeat.vitals(listed=True, gpus=True).succeeded is False, "a pass fails")
        broken.clear()
        until(
            lambda: node.agent._heartbeat.vitals(listed=True, gpus=True).succeeded is True,
            "a pass succeeds",
        )
    finally:
        stop.set()
        loop.join(scaled(30))
    assert not loop.is_alive()
