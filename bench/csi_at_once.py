"""Calls at once, for volumes of their own and for one and the same: how many succeed, how late, and with which code.

Kubelet never sends this many; a node that reboots with all its pods comes closest. A refused call is repeated at
once, while kubelet would wait, so refusals are many and the rate is that of the driver.
"""

from collections import Counter
from dataclasses import dataclass
from queue import SimpleQueue
from time import perf_counter
from typing import TYPE_CHECKING

from csi_calls import SECONDS, Caller, Volume, percentile
from csi_node import Node

if TYPE_CHECKING:
    from google.protobuf.message import Message

ALLOWED = frozenset({"OK", "ABORTED", "RESOURCE_EXHAUSTED"})

Ended = tuple[int, float, str]
"""Which lane, how many seconds the call took, and its code."""


@dataclass(frozen=True)
class CallsAtOnce:
    """How many calls are on their way at any time, and how many in all."""

    lanes: int
    calls: int


def different_volumes(node: Node, size: CallsAtOnce) -> dict[str, float]:
    """Every lane publishes and unpublishes a volume of its own."""
    return _measured(node, "at_once", [node.standing({"cacheName": "llama"}) for _ in range(size.lanes)], size.calls)


def shared_volume(node: Node, size: CallsAtOnce) -> dict[str, float]:
    """All publish and unpublish the same volume."""
    return _measured(node, "one_volume", [node.standing({"cacheName": "llama"})] * size.lanes, size.calls)


def _measured(node: Node, what: str, lanes: list[Volume], calls: int) -> dict[str, float]:
    caller = node.ours.caller
    answers: Counter[str] = Counter()
    seconds: list[float] = []
    ended: SimpleQueue[Ended] = SimpleQueue()
    mounted = [False] * len(lanes)
    began = perf_counter()
    for lane, volume in enumerate(lanes):
        _start_call(caller, volume, lane, ended, mounted=False)
    for number in range(calls):
        lane, took, code = ended.get(timeout=SECONDS)
        answers[code] += 1
        seconds.append(took)
        mounted[lane] ^= code == "OK"
        if number < calls - len(lanes):
            _start_call(caller, lanes[lane], lane, ended, mounted=mounted[lane])
    elapsed = perf_counter() - began
    for volume in lanes:
        caller.unpublished(volume)
    assert answers.keys() <= ALLOWED, f"{what}: {answers}"
    counts = {f"{what}_{code.lower()}": float(answers[code]) for code in sorted(ALLOWED)}
    return {
        f"{what}_rate_per_s": calls / elapsed,
        f"{what}_ok_per_s": answers["OK"] / elapsed,
        f"{what}_p50_ms": 1000 * percentile(seconds, 50),
        f"{what}_p99_ms": 1000 * percentile(seconds, 99),
        **counts,
    }


def _start_call(caller: Caller, volume: Volume, lane: int, ended: "SimpleQueue[Ended]", *, mounted: bool) -> None:
    """Start a call: unpublish a published volume, or publish it."""
    began = perf_counter()
    call = caller.unpublish if mounted else caller.publish
    message: Message = volume.unpublish if mounted else volume.publish
    future = call.future(message, timeout=SECONDS)
    future.add_done_callback(lambda _: ended.put((lane, perf_counter() - began, future.code().name)))
