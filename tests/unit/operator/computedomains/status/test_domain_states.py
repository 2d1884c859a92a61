"""The states of `gkm_computedomains`: an alert counts what is not ready, and not what only waits."""

import pytest
from gkm.api.domain_readiness import ReadyReason, unused
from gkm_operator.computedomains.status.controller import state_of
from msgspec import structs

WAITS = {ReadyReason.WAITING_FOR_PODS, ReadyReason.PODS_PENDING}
OF_THEIR_OWN = {ReadyReason.DOMAIN_LOST: "lost", ReadyReason.DOMAIN_TERMINATING: "terminating"}


@pytest.mark.parametrize("reason", [each for each in ReadyReason if each != ReadyReason.ALL_NODES_READY], ids=str)
def test_pods_that_do_not_exist_or_wait_for_nodes_are_no_fault(reason: ReadyReason) -> None:
    wanted = "waiting" if reason in WAITS else OF_THEIR_OWN.get(reason, "notReady")
    assert state_of(structs.replace(unused("2026-02-01T00:00:00Z"), reason=reason)) == wanted
