"""Captures of many nodes take turns, and what a node announces without proof delays no other node."""

from collections.abc import Callable
from datetime import datetime

from gkm.api.errors import GKMError, Reason
from gkm.kube.errors import ApiError
from gkm.kube.resources import GKMCACHENODES
from gkm_operator.caches.throttling import BURST
from gkm_operator.captures.objects import Announcement
from gkm_operator.captures.reconciler import (
    BACKOFF,
    FAILURE_SECONDS,
    FAILURES_AT_ONCE,
    PER_PASS,
    REGISTER_SECONDS,
    SOON_SECONDS,
)
from support.kube.interposed_api import Call
from support.operator.captures import (
    NAMESPACE,
    CapturesProcess,
    CapturesWorld,
    FakeCapturedImages,
    captured,
    name_of,
)


def forge(world: CapturesWorld, *numbers: int, node: str = "stolen", namespace: str = NAMESPACE) -> None:
    """Let a node announce captures, newer than all others, that prove nothing."""
    made = [captured(number, namespace=namespace, age=-30.0) for number in numbers]
    for each in made:
        world.images.errors[each.image] = GKMError(Reason.SIGNATURE_MISSING, "no signature was found")
    world.announce(node, *made, namespace=namespace)


def test_a_node_whose_captures_prove_nothing_delays_those_of_no_other_node() -> None:
    world = CapturesWorld()
    forge(world, *range(100, 132))
    world.announce("a-node", captured(1, age=50))
    world.announce("z-node", captured(2, age=60))
    CapturesProcess(world).run(1)
    assert world.names() == [name_of(1), name_of(2)]


def test_many_nodes_take_turns() -> None:
    world = CapturesWorld()
    for number in range(2 * PER_PASS):
        forge(world, *range(1000 + 8 * number, 1008 + 8 * number), node=f"a-{number}")
    world.announce("z-node", captured(1, age=60))
    CapturesProcess(world).run(3)
    assert world.names() == [name_of(1)]


def test_a_webhook_that_fails_for_one_capture_delays_no_other_of_its_node() -> None:
    world = CapturesWorld()
    world.announce("node", *(captured(number, age=float(number)) for number in range(1, 4)))
    fails = [True]

    def around(call: Call, send: Callable[[], object]) -> object:
        if fails[0] and (call.verb, call.name) == ("create", name_of(1)):
            raise ApiError(500, "InternalError", 'Internal error occurred: failed calling webhook "v.example": timeout')
        return send()

    process = CapturesProcess(world, around)
    process.run(2)
    assert world.names() == [name_of(2), name_of(3)], "a webhook that fails for one capture delays the others"
    assert len(world.images.proofs) == 3, "a capture is proven again at each pass while the webhook fails"
    fails[0] = False
    process.seconds += 2 * BACKOFF.first
    process.run(1)
    assert world.names() == [name_of(1), name_of(2), name_of(3)]


def test_failed_proofs_of_a_node_are_limited_in_all_namespaces_together_whatever_it_announces_next() -> None:
    world = CapturesWorld()
    process = CapturesProcess(world)
    for start in range(100, 400, 32):
        forge(world, *range(start, start + 32))
        forge(world, *range(start, start + 32), namespace="others")
        process.run(2)
    assert len(world.images.proofs) == FAILURES_AT_ONCE
    process.seconds += FAILURE_SECONDS + 1.0
    process.run(3)
    assert len(world.images.proofs) == FAILURES_AT_ONCE + 1


def test_a_node_that_waits_delays_no_capture_that_another_node_announces_too() -> None:
    world = CapturesWorld()
    process = CapturesProcess(world)
    forge(world, *range(100, 132))
    process.run(4)
    world.announce("stolen", captured(1))
    world.announce("z-node", captured(1))
    process.run(1)
    assert world.names() == [name_of(1)]


class TrueHardware(FakeCapturedImages):
    """Images whose statements name one GPU."""

    def prove(self, announced: Announcement, now: datetime, *, cluster: bool) -> datetime:
        if announced.hardware.arch != captured().arch:
            raise GKMError(Reason.SIGNATURE_MISSING, "the statement names other hardware")
        return super().prove(announced, now, cluster=cluster)


def test_a_claim_of_other_hardware_hides_no_true_one() -> None:
    world = CapturesWorld(images=TrueHardware())
    # The name of a cache has no underscore, so it is the same.
    world.announce("stolen", captured(arch="sm90", age=-30.0))
    world.announce("z-node", captured())
    CapturesProcess(world).run()
    assert world.names() == [name_of(1)]


def test_a_pass_begins_no_proof_after_a_minute() -> None:
    class SlowImages(FakeCapturedImages):
        def prove(self, announced: Announcement, now: datetime, *, cluster: bool) -> datetime:
            process.seconds += REGISTER_SECONDS / 2
            return super().prove(announced, now, cluster=cluster)

    world = CapturesWorld(images=SlowImages())
    world.announce("node-1", *(captured(number, age=number) for number in range(1, 6)))
    process = CapturesProcess(world)
    assert process.controller.reconciler.reconcile(NAMESPACE) == SOON_SECONDS
    assert world.names() == [name_of(1), name_of(2)]
    process.run(2)
    assert len(world.names()) == 5


def test_a_node_that_makes_its_object_anew_has_no_more_events() -> None:
    world = CapturesWorld()
    process = CapturesProcess(world)
    for _ in range(BURST + 5):
        world.announce("stolen", captured(name="llama"))
        process.run(1)
        world.api.delete(GKMCACHENODES, "stolen", NAMESPACE)
        process.run(1)
    assert len(world.events()) == BURST
