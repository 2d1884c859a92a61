"""The loop: compares what is wanted with what is on disk, takes the next steps, says how it stands.

It is level-triggered: a turn reads everything again and depends on no event having been seen. What it keeps in memory
(tries that failed, pulls under way) costs a repetition when it is lost, nothing else.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from threading import Event

from gkm.api.config import Capture, Store
from gkm.api.errors import Reason
from gkm.gpus.values import Inventory
from gkm.hoststate import pointers, waiting
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer

from gkm_agent import decisions, knowledge, logs, ownership
from gkm_agent.collection import CAPTURE, Collector
from gkm_agent.decisions import Ask, Known, Say, Step, Wait
from gkm_agent.desk import Desk, Ticket, load_pointer
from gkm_agent.gpu_watch import GpuWatch
from gkm_agent.health import Pulse
from gkm_agent.images import CacheImages
from gkm_agent.inspection import Inspector
from gkm_agent.publisher import Publisher
from gkm_agent.pull import Failure, Pull, failure_of
from gkm_agent.room import Room
from gkm_agent.source import CacheSource
from gkm_agent.status import statuses
from gkm_agent.tries import Tries
from gkm_agent.turn_metrics import TurnMetrics
from gkm_agent.turns import Turns
from gkm_agent.unsaid import Unsaid
from gkm_agent.values import WantedCache
from gkm_agent.workers import Workers

TURN_SECONDS = 10.0
"""At least so often a turn is made: usage records change without telling us."""


class Agent:
    """One node's agent. Its methods are called by one thread only."""

    def __init__(
        self,
        *,
        desk: Desk,
        source: CacheSource,
        images: CacheImages,
        gpus: GpuWatch,
        publisher: Publisher,
        policy: Callable[[], str],
        wake: Event,
        clock: Callable[[], float] = time.time,
        pulse: Pulse | None = None,
        bounds: Store | None = None,
        capture: Capture = CAPTURE,
        tell_ready: Callable[[Mapping[CacheRef, str]], object] = lambda _ready: None,
        keeps: bool = False,
    ) -> None:
        bounds = bounds or Store()
        self._desk = desk
        self._source = source
        self._images = images
        self._gpus = gpus
        self._publisher = publisher
        self._policy_now = policy
        self._policy = policy()
        self._keeps = keeps
        self._wake = wake
        self._clock = clock
        self._workers = Workers(desk, wake, clock)
        self._tries = Tries(clock)
        self._memory = knowledge.Memory(desk.layout)
        self._unsaid = Unsaid(desk.layout)
        self._room = Room(desk, bounds, clock)
        self._collector = Collector(desk, self._room, bounds, clock, capture)
        self._inspector = Inspector(desk, wake, bounds.check_interval, clock=clock)
        self._next_try: float | None = None
        self._pulse = pulse or Pulse()
        self._metrics = TurnMetrics()
        self._tell_ready = tell_ready

    def run(self, stop: Event) -> None:
        """Work until `stop` is set, then end in bounded time. Whoever sets `stop` sets the wake event after it."""
        self._inspector.start()
        while not stop.is_set():
            self._wake.clear()
            try:
                self.turn()
            except Exception:  # noqa: BLE001 -- a defect costs one turn, not the node
                logs.event("a turn failed", level=logging.ERROR, exc_info=True)
                self._pulse.beat(well=False)
            else:
                self._pulse.beat(well=True)
            if not stop.is_set():
                self._wake.wait(self._until_next())
        self._inspector.stop()
        self._workers.end()

    def settle(self, stop: Event) -> bool:
        """Work until nothing is left that can be done now; return whether every wanted cache is Ready."""
        while not stop.is_set():
            self._wake.clear()
            if self.turn():
                break
            self._wake.wait(TURN_SECONDS)
        self._workers.end()
        found = [load_pointer(self._desk.layout, wanted.ref) for wanted in self._source.caches()]
        return self._source.synced and all(pointer and pointer.state is CacheState.READY for pointer in found)

    def turn(self) -> bool:
        """Take every step that can be taken now; return whether nothing is under way."""
        self._next_try = None  # first: a turn that fails must not leave a time that has passed
        for finished in self._workers.finished():
            self._ended(finished.wanted, finished.failure)
        for ref in self._room.eased():
            self._tries.again(ref)
        self._policy = self._policy_now()
        inventory = self._gpus.inventory
        # Asked before the caches are: what becomes complete in between has left some out, and they are not gone.
        complete = self._source.synced
        wanted = {cache.ref: cache for cache in self._source.caches() if self._is_for_us(cache, inventory)}
        self._workers.call_off(wanted)
        for memory in (self._tries, self._unsaid, self._room):
            memory.keep(wanted)
        if complete:
            self._forget(wanted)
        known = knowledge.look(self._memory, wanted, self._tries, complete=complete)
        asks = {ref: ask for ref, cache in wanted.items() if (ask := self._step(cache, known, inventory)) is not None}
        self._start(asks, wanted, known, inventory)
        used = self._collector.read()
        self._collector.collect(known, wanted, complete=complete)
        told = statuses(self._unsaid.shown(known), used, inventory)
        self._publisher.set(told)
        if complete:
            self._tell_ready(_ready(known))
        stored = sum(note.size_bytes for note in self._desk.holdings.notes().values())
        self._metrics.turned(told, mounts=used, store_bytes=stored)
        return self._workers.idle

    def _ended(self, wanted: WantedCache, failure: Failure | None) -> None:
        self._tries.ended(wanted, failure)
        self._unsaid.ended(wanted, failure)
        if failure is not None and failure.reason == Reason.DISK_FULL:
            self._room.refused(wanted.ref)

    def _is_for_us(self, cache: WantedCache, inventory: Inventory) -> bool:
        """Return whether a node with such GPUs has a cache.

        One that is here stays: a driver that is being replaced looks like a machine without GPUs.
        """
        has_gpus = bool(inventory.gpus or inventory.errors)
        return cache.selected or has_gpus or load_pointer(self._desk.layout, cache.ref) is not None

    def _forget(self, wanted: Mapping[CacheRef, WantedCache]) -> None:
        for ref in [ref for ref in pointers.refs(self._desk.layout) if ref not in wanted]:
            try:
                self._desk.forget(ref)
                waiting.forget(self._desk.layout, ref)
            except OSError as error:
                # The next turn tries again; until then it is no reason to leave the other caches alone.
                logs.event("cache not forgotten", level=logging.ERROR, cache=str(ref), why=str(error))
            else:
                logs.event("cache deleted", cache=str(ref))

    def _step(self, cache: WantedCache, known: dict[CacheRef, Known], inventory: Inventory) -> Ask | None:
        """Take the next step for a cache if it needs nobody else; return it if it needs a worker.

        What is said in the step is then what is known.
        """
        try:
            # Also while a pull of the other object is on its way to its end: it writes nothing any more.
            known[cache.ref] = ownership.disowned(self._desk, cache, known[cache.ref], self._said)
            if self._workers.pulls(cache.ref):
                return None
            step = self._decided(cache, known[cache.ref], inventory)
            if isinstance(step, Say):
                known[cache.ref] = replace(known[cache.ref], pointer=self._said(step.pointer))
        except Exception as error:  # noqa: BLE001 -- whatever one cache does to us, the others go on
            self._ended(cache, replace(failure_of(error), noted=False))
            known[cache.ref] = replace(known[cache.ref], attempt=self._tries.of(cache))
            logs.event("no step taken", level=logging.ERROR, cache=str(cache.ref), why=str(error), exc_info=True)
            return None
        if isinstance(step, Wait):
            self._next_try = min(step.until, self._next_try or step.until)
        return step if isinstance(step, Ask) else None

    def _decided(self, cache: WantedCache, known: Known, inventory: Inventory) -> Step:
        digest = decisions.meant(cache, known.pointer, known.check)
        size = knowledge.entry_bytes(self._desk, self._images, digest, known.pointer)
        known = replace(known, entry_bytes=size)
        return decisions.decide(cache, known, inventory, self._policy, self._clock(), keeps=self._keeps)

    def _said(self, pointer: Pointer) -> Pointer:
        said = self._desk.save(pointer)
        logs.event(
            "cache state",
            cache=str(said.ref),
            state=said.state.value,
            digest=said.digest or None,
            reason=said.reason or None,
            why=said.message or None,
        )
        return said

    def _start(
        self,
        asks: Mapping[CacheRef, Ask],
        wanted: Mapping[CacheRef, WantedCache],
        known: Mapping[CacheRef, Known],
        inventory: Inventory,
    ) -> None:
        """Start pulls while there are workers for them, or have one that lasts too long make room for who waits."""
        turns = Turns(self._workers, self._tries, cache(lambda ref: waiting.is_waited_for(self._desk.layout, ref)))
        left = dict(asks)
        while (ref := turns.next(left)) is not None:
            self._begin(wanted[ref], left.pop(ref), known[ref], inventory)
        if (late := turns.to_give_way(left)) is not None:
            self._tries.began(late)  # it has had its turn until now: whoever waits goes before it
            self._workers.give_way(late)

    def _begin(self, wanted: WantedCache, ask: Ask, known: Known, inventory: Inventory) -> None:
        pointer = known.pointer
        self._tries.began(wanted.ref)
        self._workers.start(
            Pull(
                wanted=wanted,
                digest=ask.digest,
                desk=self._desk,
                images=self._images,
                inventory=inventory,
                policy=self._policy,
                ticket=Ticket(wanted.ref),
                room=self._room,
                announced=_is_announced(wanted, pointer),
                serving=pointer if ask.serving else None,
                signers=decisions.signers(known.check, wanted, ask.digest),
            )
        )

    def _until_next(self) -> float:
        if self._next_try is None:
            return TURN_SECONDS
        return min(TURN_SECONDS, max(0.05, self._next_try - self._clock()))


def _is_announced(wanted: WantedCache, pointer: Pointer | None) -> bool:
    """Return whether a pointer says already why this image failed for this object."""
    if pointer is None or pointer.state is not CacheState.FAILED:
        return False
    return (pointer.image, pointer.uid) == (wanted.image, wanted.uid)


def _ready(known: Mapping[CacheRef, Known]) -> dict[CacheRef, str]:
    """Return the digests of the caches that pods can mount now."""
    pointed = ((ref, cache.pointer) for ref, cache in known.items())
    return {ref: pointer.digest for ref, pointer in pointed if pointer and pointer.state is CacheState.READY}
