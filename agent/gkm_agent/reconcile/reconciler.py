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
from gkm.hoststate import pointers
from gkm.hoststate import waiting_pods as waiting
from gkm.hoststate.logs import fields
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer

from gkm_agent import ownership
from gkm_agent.caches import decisions
from gkm_agent.caches.decisions import Action, Observed, RetryAt, StartPull, WritePointer
from gkm_agent.caches.model import WantedCache
from gkm_agent.gpus import GpuWatch
from gkm_agent.interfaces.source import CacheSource
from gkm_agent.pulls.images import CacheImages
from gkm_agent.pulls.job import Failure, PullJob, failure_of
from gkm_agent.pulls.pool import PullPool
from gkm_agent.pulls.retries import RetrySchedule
from gkm_agent.pulls.scheduler import PullScheduler
from gkm_agent.reconcile import observed as knowledge
from gkm_agent.reconcile.unwritten_failures import UnpersistedFailures
from gkm_agent.report.publisher import StatusPublisher
from gkm_agent.report.status import statuses
from gkm_agent.store.budget import DiskBudget
from gkm_agent.store.collector import CAPTURE, Collector
from gkm_agent.store.pointers import PointerStore, PullToken, load_pointer
from gkm_agent.store.scrubber import Scrubber
from gkm_agent.telemetry.health import Heartbeat
from gkm_agent.telemetry.reconcile_metrics import ReconcileMetrics

_LOG = logging.getLogger(__name__)

RECONCILE_SECONDS = 10.0
"""At least so often a turn is made: usage records change without telling us."""


class Reconciler:
    """One node's agent. Its methods are called by one thread only."""

    def __init__(
        self,
        *,
        store: PointerStore,
        source: CacheSource,
        images: CacheImages,
        gpus: GpuWatch,
        publisher: StatusPublisher,
        policy: Callable[[], str],
        wake: Event,
        clock: Callable[[], float] = time.time,
        heartbeat: Heartbeat | None = None,
        bounds: Store | None = None,
        capture: Capture = CAPTURE,
        report_ready: Callable[[Mapping[CacheRef, str]], object] = lambda _ready: None,
        serve_revoked: bool = False,
    ) -> None:
        bounds = bounds or Store()
        self._store = store
        self._source = source
        self._images = images
        self._gpus = gpus
        self._publisher = publisher
        self._policy_now = policy
        self._policy = policy()
        self._serve_revoked = serve_revoked
        self._wake = wake
        self._clock = clock
        self._pool = PullPool(store, wake, clock)
        self._retries = RetrySchedule(clock)
        self._reader = knowledge.StateReader(store.layout)
        self._unpersisted = UnpersistedFailures(store.layout)
        self._budget = DiskBudget(store, bounds, clock)
        self._collector = Collector(store, self._budget, bounds, clock, capture)
        self._scrubber = Scrubber(store, wake, bounds.check_interval, clock=clock)
        self._next_try: float | None = None
        self._heartbeat = heartbeat or Heartbeat()
        self._reconcile_metrics = ReconcileMetrics()
        self._report_ready = report_ready

    def run(self, stop: Event) -> None:
        """Work until `stop` is set, then end in bounded time. Whoever sets `stop` sets the wake event after it."""
        self._scrubber.start()
        while not stop.is_set():
            self._wake.clear()
            try:
                self.reconcile()
            except Exception:  # noqa: BLE001 -- a defect costs one turn, not the node
                _LOG.exception("a turn failed")
                self._heartbeat.beat(well=False)
            else:
                self._heartbeat.beat(well=True)
            if not stop.is_set():
                self._wake.wait(self._seconds_until_next())
        self._scrubber.stop()
        self._pool.stop()

    def settle(self, stop: Event) -> bool:
        """Work until nothing is left that can be done now; return whether every wanted cache is Ready."""
        while not stop.is_set():
            self._wake.clear()
            if self.reconcile():
                break
            self._wake.wait(RECONCILE_SECONDS)
        self._pool.stop()
        found = [load_pointer(self._store.layout, wanted.ref) for wanted in self._source.caches()]
        return self._source.synced and all(pointer and pointer.state is CacheState.READY for pointer in found)

    def reconcile(self) -> bool:
        """Take every step that can be taken now; return whether nothing is under way."""
        self._next_try = None  # first: a turn that fails must not leave a time that has passed
        for finished in self._pool.finished():
            self._record_end(finished.wanted, finished.failure)
        for ref in self._budget.caches_with_space():
            self._retries.retry_now(ref)
        self._policy = self._policy_now()
        inventory = self._gpus.inventory
        # Asked before the caches are: what becomes complete in between has left some out, and they are not gone.
        complete = self._source.synced
        wanted = {cache.ref: cache for cache in self._source.caches() if self._is_for_node(cache, inventory)}
        self._pool.cancel_unwanted(wanted)
        for memory in (self._retries, self._unpersisted, self._budget):
            memory.retain_only(wanted)
        if complete:
            self._remove_unwanted(wanted)
        known = knowledge.observe(self._reader, wanted, self._retries, complete=complete)
        asks = {
            ref: ask for ref, cache in wanted.items() if (ask := self._take_action(cache, known, inventory)) is not None
        }
        self._start_pulls(asks, wanted, known, inventory)
        used = self._collector.read()
        self._collector.collect(known, wanted, complete=complete)
        told = statuses(self._unpersisted.overlay(known), used, inventory)
        self._publisher.set(told)
        if complete:
            self._report_ready(_ready(known))
        stored = sum(note.size_bytes for note in self._store.catalog.entries().values())
        self._reconcile_metrics.record(told, mounts=used, store_bytes=stored)
        return self._pool.idle

    def _record_end(self, wanted: WantedCache, failure: Failure | None) -> None:
        self._retries.record_end(wanted, failure)
        self._unpersisted.record(wanted, failure)
        if failure is not None and failure.reason == Reason.DISK_FULL:
            self._budget.record_disk_full(wanted.ref)

    def _is_for_node(self, cache: WantedCache, inventory: Inventory) -> bool:
        """Return whether a node with such GPUs has a cache.

        One that is here stays: a driver that is being replaced looks like a machine without GPUs.
        """
        has_gpus = bool(inventory.gpus or inventory.errors)
        return cache.selected or has_gpus or load_pointer(self._store.layout, cache.ref) is not None

    def _remove_unwanted(self, wanted: Mapping[CacheRef, WantedCache]) -> None:
        for ref in [ref for ref in pointers.refs(self._store.layout) if ref not in wanted]:
            try:
                self._store.remove(ref)
                waiting.clear_waiting(self._store.layout, ref)
            except OSError as error:
                # The next turn tries again; until then it is no reason to leave the other caches alone.
                _LOG.error("cache not forgotten", extra=fields(cache=str(ref), why=str(error)))
            else:
                _LOG.info("cache deleted", extra=fields(cache=str(ref)))

    def _take_action(
        self, cache: WantedCache, known: dict[CacheRef, Observed], inventory: Inventory
    ) -> StartPull | None:
        """Take the next step for a cache if it needs nobody else; return it if it needs a worker.

        What is said in the step is then what is known.
        """
        try:
            # Also while a pull of the other object is on its way to its end: it writes nothing any more.
            known[cache.ref] = ownership.disowned(self._store, cache, known[cache.ref], self._write_pointer)
            if self._pool.is_pulling(cache.ref):
                return None
            step = self._decide(cache, known[cache.ref], inventory)
            if isinstance(step, WritePointer):
                known[cache.ref] = replace(known[cache.ref], pointer=self._write_pointer(step.pointer))
        except Exception as error:  # noqa: BLE001 -- whatever one cache does to us, the others go on
            self._record_end(cache, replace(failure_of(error), persisted=False))
            known[cache.ref] = replace(known[cache.ref], attempt=self._retries.attempt_of(cache))
            _LOG.exception("no step taken", extra=fields(cache=str(cache.ref), why=str(error)))
            return None
        if isinstance(step, RetryAt):
            self._next_try = min(step.until, self._next_try or step.until)
        return step if isinstance(step, StartPull) else None

    def _decide(self, cache: WantedCache, known: Observed, inventory: Inventory) -> Action:
        digest = decisions.wanted_digest(cache, known.pointer, known.check)
        size = knowledge.entry_bytes(self._store, self._images, digest, known.pointer)
        known = replace(known, entry_bytes=size)
        return decisions.decide(cache, known, inventory, self._policy, self._clock(), serve_revoked=self._serve_revoked)

    def _write_pointer(self, pointer: Pointer) -> Pointer:
        said = self._store.save(pointer)
        _LOG.info(
            "cache state",
            extra=fields(
                cache=str(said.ref),
                state=said.state.value,
                digest=said.digest or None,
                reason=said.reason or None,
                why=said.message or None,
            ),
        )
        return said

    def _start_pulls(
        self,
        asks: Mapping[CacheRef, StartPull],
        wanted: Mapping[CacheRef, WantedCache],
        known: Mapping[CacheRef, Observed],
        inventory: Inventory,
    ) -> None:
        """Start pulls while there are workers for them, or have one that lasts too long make room for who waits."""
        turns = PullScheduler(
            self._pool, self._retries, cache(lambda ref: waiting.is_pod_waiting(self._store.layout, ref))
        )
        left = dict(asks)
        while (ref := turns.next_pull(left)) is not None:
            self._start_pull(wanted[ref], left.pop(ref), known[ref], inventory)
        if (late := turns.pull_to_preempt(left)) is not None:
            self._retries.record_start(late)  # it has had its turn until now: whoever waits goes before it
            self._pool.preempt(late)

    def _start_pull(self, wanted: WantedCache, ask: StartPull, known: Observed, inventory: Inventory) -> None:
        pointer = known.pointer
        self._retries.record_start(wanted.ref)
        self._pool.start(
            PullJob(
                wanted=wanted,
                digest=ask.digest,
                store=self._store,
                images=self._images,
                inventory=inventory,
                policy=self._policy,
                token=PullToken(wanted.ref),
                budget=self._budget,
                failure_reported=_is_announced(wanted, pointer),
                served_pointer=pointer if ask.serving else None,
                signers=decisions.signers(known.check, wanted, ask.digest),
            )
        )

    def _seconds_until_next(self) -> float:
        if self._next_try is None:
            return RECONCILE_SECONDS
        return min(RECONCILE_SECONDS, max(0.05, self._next_try - self._clock()))


def _is_announced(wanted: WantedCache, pointer: Pointer | None) -> bool:
    """Return whether a pointer says already why this image failed for this object."""
    if pointer is None or pointer.state is not CacheState.FAILED:
        return False
    return (pointer.image, pointer.uid) == (wanted.image, wanted.uid)


def _ready(known: Mapping[CacheRef, Observed]) -> dict[CacheRef, str]:
    """Return the digests of the caches that pods can mount now."""
    pointed = ((ref, cache.pointer) for ref, cache in known.items())
    return {ref: pointer.digest for ref, pointer in pointed if pointer and pointer.state is CacheState.READY}
