"""The reconcile loop. It is level-triggered: a pass reads all state again and depends on no earlier event.

A pass has five phases: it absorbs finished pulls, reads the desired state, observes the disk, decides (pure,
gkm_agent.reconcile.actions) and acts. Pulls run in other threads and wake the loop when they end. The memory of the
loop (failed attempts, running pulls) only costs a repetition when it is lost.

The loop also reads which pods wait and which kernels compiled, as the CSI process reports them; and it publishes
failures that a full disk could not store, from memory, while the disk has no newer state.
"""

import logging
import time
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from threading import Event

from gkm.api.config import Capture, Store
from gkm.api.errors import Reason
from gkm.api.nodes import CapturedImage
from gkm.gpus.values import Inventory
from gkm.hoststate import kernel_misses, waiting_pods
from gkm.hoststate.families import FamilyChoice
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.kernel_misses import RuntimeMisses
from gkm.hoststate.layout import Layout
from gkm.hoststate.logs import fields
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer

from gkm_agent.caches import decisions, families
from gkm_agent.caches.decisions import Observed, RetryAt, StartPull, WritePointer, make_pointer, serve_revoked_message
from gkm_agent.caches.model import WantedCache
from gkm_agent.gpus import GpuWatch
from gkm_agent.interfaces import CacheSource
from gkm_agent.pulls.images import CacheImages
from gkm_agent.pulls.job import Failure, PullJob, failure_of
from gkm_agent.pulls.scheduler import PullPool, PullScheduler, RetrySchedule
from gkm_agent.reconcile.actions import (
    Actions,
    CacheAction,
    DesiredState,
    RecordError,
    RemoveCache,
    ReplaceForeignPointer,
    decide,
)
from gkm_agent.reconcile.observed import Observer
from gkm_agent.report.publisher import StatusPublisher
from gkm_agent.report.status import NO_CAPTURES, NO_MISSES, NodeFindings, ready_digests, statuses
from gkm_agent.store.budget import DiskBudget
from gkm_agent.store.captures import CapturesInUse
from gkm_agent.store.collector import Collector
from gkm_agent.store.families import FamilyFiles
from gkm_agent.store.pointers import PointerStore, PullToken, load_pointer
from gkm_agent.store.scrubber import Scrubber
from gkm_agent.telemetry.health import Heartbeat
from gkm_agent.telemetry.metrics import ReconcileMetrics

_LOG = logging.getLogger(__name__)
RECONCILE_SECONDS = 10.0
"""The longest pause between two passes, in seconds: volume records change without an event."""


class Reconciler:
    """The reconcile loop of one node's agent. Only one thread may call its methods."""

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
        bounds: Store,
        clock: Callable[[], float] = time.time,
        heartbeat: Heartbeat | None = None,
        capture: Capture | None = None,
        captures_in_use: CapturesInUse | None = None,
        captures: Callable[[], Mapping[str, Sequence[CapturedImage]]] = lambda: NO_CAPTURES,
        report_ready: Callable[[Mapping[CacheRef, str]], object] = lambda _ready: None,
        serve_revoked: bool = False,
    ) -> None:
        self._store = store
        store.trash.emptied = wake.set  # a pass may need the space
        self._source = source
        self._images = images
        self._gpus = gpus
        self._publisher = publisher
        self._policy = policy
        self._last_policy = ""
        self._serve_revoked = serve_revoked
        self._wake = wake
        self._clock = clock
        self._pool = PullPool(store, wake, clock)
        self._retries = RetrySchedule(clock)
        self._observer = Observer(store, self._retries)
        self._unpersisted = UnpersistedFailures(store.layout)
        self._budget = DiskBudget(store, bounds, clock)
        self._collector = Collector(
            store,
            self._budget,
            bounds,
            clock,
            capture=capture or Capture(),
            captures_in_use=captures_in_use or CapturesInUse(),
        )
        self._captures = captures
        self._scrubber = Scrubber(store, wake, bounds.check_interval, clock=clock)
        self._next_retry: float | None = None
        self._heartbeat = heartbeat or Heartbeat()
        self._metrics = ReconcileMetrics()
        self._families = FamilyFiles(store.layout)
        self._volume_reports = VolumeReports(store.layout)
        self._report_ready = report_ready

    def run(self, stop: Event) -> None:
        """Reconcile until `stop` is set, then stop in bounded time. The caller sets the wake event after `stop`."""
        self._scrubber.start()
        while not stop.is_set():
            self._wake.clear()
            try:
                self.reconcile()
            except Exception:  # noqa: BLE001 -- a defect costs one pass, not the agent
                _LOG.exception("reconcile of the node failed, the next pass tries again")
                self._heartbeat.beat(succeeded=False)
            else:
                self._heartbeat.beat(succeeded=True)
            if not stop.is_set():
                self._wake.wait(self._seconds_until_next())
        self._scrubber.stop()
        self._pool.stop()

    def settle(self, stop: Event) -> bool:
        """Run passes until no more work can be done now; return whether every wanted cache is Ready."""
        while not stop.is_set():
            self._wake.clear()
            if self.reconcile() and not self._store.trash.is_emptying():
                break
            self._wake.wait(RECONCILE_SECONDS)
        self._pool.stop()
        found = [load_pointer(self._store.layout, wanted.ref) for wanted in self._source.caches()]
        return self._source.synced and all(pointer and pointer.state is CacheState.READY for pointer in found)

    def reconcile(self) -> bool:
        """Run one pass; return whether no pull is running afterwards."""
        self._next_retry = None  # first: a pass that fails must not leave a time in the past
        self._absorb_finished_pulls()
        desired = self._read_desired()
        self._release_unwanted(desired)
        observation = self._observer.observe(desired.caches, self._pool.pulling, complete=desired.complete)
        actions = decide(desired, observation, self._pool.pulling, self._clock())
        # Pods get another member before the chosen one goes.
        self._choose_members(desired, observation.caches)
        observed = self._act(actions, desired, observation.caches)
        self._collect_and_report(desired, observed)
        return self._pool.idle

    def _absorb_finished_pulls(self) -> None:
        for pull, failure in self._pool.finished():
            self._record_end(pull.wanted, failure)
            if pull.policy != self._last_policy:
                self._retries.retry_now(pull.wanted.ref)
        for ref in self._budget.caches_with_space():
            self._retries.retry_now(ref)

    def _record_end(self, wanted: WantedCache, failure: Failure | None) -> None:
        self._retries.record_end(wanted, failure)
        self._unpersisted.record(wanted, failure)
        if failure is not None and failure.reason == Reason.DISK_FULL:
            self._budget.record_disk_full(wanted.ref)

    def _read_desired(self) -> DesiredState:
        inventory = self._gpus.inventory
        # Before `caches`: a source that completes in between has left out caches that are not deleted.
        complete = self._source.synced
        caches = {wanted.ref: wanted for wanted in self._source.caches() if self._is_for_node(wanted, inventory)}
        return DesiredState(caches, complete, inventory, self._read_policy(), self._serve_revoked)

    def _read_policy(self) -> str:
        """Return the fingerprint of the policy; another one may let through what failed, so it ends all pauses.

        The next pauses go on growing: a policy that changes again and again causes one try for each change.
        """
        policy = self._policy()
        if policy != self._last_policy:
            self._last_policy = policy
            self._retries.retry_all_now()
        return policy

    def _is_for_node(self, wanted: WantedCache, inventory: Inventory) -> bool:
        """Return whether a node with these GPUs should have a cache.

        A cache with a pointer stays: during the replacement of a driver a machine looks like one without GPUs.
        """
        has_gpus = bool(inventory.gpus or inventory.errors)
        return wanted.selected or has_gpus or load_pointer(self._store.layout, wanted.ref) is not None

    def _release_unwanted(self, desired: DesiredState) -> None:
        """Cancel the pulls of unwanted or changed caches, and drop the memory about them."""
        self._pool.cancel_unwanted(desired.caches)
        for memory in (self._retries, self._unpersisted, self._budget):
            memory.retain_only(desired.caches)

    def _act(
        self, actions: Actions, desired: DesiredState, before: Mapping[CacheRef, Observed]
    ) -> dict[CacheRef, Observed]:
        """Take the actions; return the observed state after them. A cache that fails does not stop the others."""
        observed = dict(before)
        failed: set[CacheRef] = set()
        for ref, action in actions:
            if ref in failed:
                continue
            try:
                self._take(action, ref, observed)
            except Exception as error:
                if ref not in desired.caches:
                    raise
                failed.add(ref)
                wanted, failure = desired.caches[ref], replace(failure_of(error), persisted=False)
                attempt = self._retries.attempt_of(wanted)
                if attempt is not None and self._clock() < attempt.next_try:
                    self._unpersisted.record(wanted, failure)  # the same again is no news
                else:
                    self._record_end(wanted, failure)
                    _LOG.exception(
                        "cache reconcile failed, tried again later", extra=fields(cache=str(ref), why=str(error))
                    )
                observed[ref] = replace(observed[ref], attempt=self._retries.attempt_of(wanted))
        pulls = {ref: action for ref, action in actions if isinstance(action, StartPull) and ref not in failed}
        self._start_pulls(pulls, desired, observed)
        return observed

    def _take(self, action: CacheAction, ref: CacheRef, observed: dict[CacheRef, Observed]) -> None:
        match action:
            case RemoveCache():
                self._remove_cache(ref)
            case ReplaceForeignPointer():
                written = self._store.withdraw(action.pointer)
                check = observed[ref].check if written is not None else None
                observed[ref] = replace(observed[ref], pointer=written, check=check)
                _log_state(written)
            case WritePointer():
                written = self._store.save(action.pointer)
                observed[ref] = replace(observed[ref], pointer=written)
                _log_state(written)
            case RetryAt():
                self._next_retry = min(action.until, self._next_retry or action.until)
            case RecordError():
                raise action.error
            case StartPull():
                pass  # after all pointers are written: the scheduler chooses among all pulls

    def _remove_cache(self, ref: CacheRef) -> None:
        try:
            self._store.remove(ref)
            waiting_pods.clear_waiting(self._store.layout, ref)
        except OSError as error:
            # The next pass tries again.
            _LOG.error(
                "cache not removed from this node, the next pass tries again",
                extra=fields(cache=str(ref), why=str(error)),
            )
        else:
            _LOG.info("cache removed from this node", extra=fields(cache=str(ref)))

    def _start_pulls(
        self, pulls: Mapping[CacheRef, StartPull], desired: DesiredState, observed: Mapping[CacheRef, Observed]
    ) -> None:
        """Start pulls while workers are free; preempt an overdue pull if another cache should have its worker."""
        is_awaited = cache(lambda ref: waiting_pods.is_pod_waiting(self._store.layout, ref))
        scheduler = PullScheduler(self._pool, self._retries, is_awaited)
        remaining = dict(pulls)
        while (ref := scheduler.next_pull(remaining)) is not None:
            self._start_pull(desired.caches[ref], remaining.pop(ref), observed[ref], desired)
        if (overdue := scheduler.pull_to_preempt(remaining)) is not None:
            self._retries.record_start(overdue)  # it has used its worker until now, so waiting caches precede it
            self._pool.preempt(overdue)

    def _start_pull(self, wanted: WantedCache, action: StartPull, observed: Observed, desired: DesiredState) -> None:
        self._retries.record_start(wanted.ref)
        self._pool.start(
            PullJob(
                wanted=wanted,
                digest=action.digest,
                store=self._store,
                images=self._images,
                inventory=desired.inventory,
                policy=desired.policy,
                token=PullToken(wanted.ref),
                budget=self._budget,
                is_approved=decisions.is_current(observed.check, wanted, action.digest, desired.policy),
                failure_reported=decisions.has_state(observed.pointer, wanted, CacheState.FAILED),
                served_pointer=observed.pointer if action.serving else None,
                signers=decisions.signers(observed.check, wanted, action.digest),
            )
        )

    def _collect_and_report(self, desired: DesiredState, observed: Mapping[CacheRef, Observed]) -> None:
        records = self._collector.read()
        self._collector.collect(observed, desired.caches, complete=desired.complete)
        findings = self._volume_reports.findings(shown := self._unpersisted.overlay(observed), self._captures())
        choices = self._choose_members(desired, observed)
        published = statuses(shown, records, desired.inventory, findings, choices)
        self._publisher.set(published)
        if desired.complete:
            self._report_ready(ready_digests(observed, choices))
        store_bytes = sum(info.size_bytes for info in self._store.catalog.entries().values())
        self._metrics.record(published, mounts=records, store_bytes=store_bytes)

    def _choose_members(self, desired: DesiredState, observed: Mapping[CacheRef, Observed]) -> Collection[FamilyChoice]:
        """Write down which member of each family pods get; return the choices."""
        pointers = {ref: cache.pointer for ref, cache in observed.items() if cache.pointer is not None}
        choices = families.choices(desired.caches.values(), pointers)
        self._families.write(choices, complete=desired.complete)
        return choices.values()

    def _seconds_until_next(self) -> float:
        if self._next_retry is None:
            return RECONCILE_SECONDS
        return min(RECONCILE_SECONDS, max(0.05, self._next_retry - self._clock()))


def _log_state(pointer: Pointer | None) -> None:
    if pointer is not None:
        _LOG.info(
            "state of a cache on this node changed",
            extra=fields(
                cache=str(pointer.ref),
                state=pointer.state.value,
                digest=pointer.digest or None,
                reason=pointer.reason or None,
                why=pointer.message or None,
            ),
        )


class VolumeReports:
    """Reads the CSI driver's reports on this node: waiting pods and compiled kernels.

    Logs an unreadable report once.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._last_error = ""

    def findings(
        self, observed: Mapping[CacheRef, Observed], captures: Mapping[str, Sequence[CapturedImage]]
    ) -> NodeFindings:
        """Return what the CSI driver and the captures report.

        Waiting pods only for caches that fit no GPU of this node.
        """
        unfit = [ref for ref, one in observed.items() if one.pointer and one.pointer.state is CacheState.INCOMPATIBLE]
        awaited = [ref for ref in unfit if waiting_pods.is_pod_waiting(self._layout, ref)]
        return NodeFindings(captures, awaited, self._misses())

    def _misses(self) -> Mapping[str, RuntimeMisses]:
        try:
            found = kernel_misses.load(self._layout)
        except (OSError, UnreadableState) as error:
            if str(error) != self._last_error:
                self._last_error = str(error)
                _LOG.warning(
                    "counts of compiled kernels not read, left out of the report of this node",
                    extra=fields(why=self._last_error),
                )
            return NO_MISSES
        self._last_error = ""
        return found


@dataclass(frozen=True, slots=True)
class _UnpersistedFailure:
    """The pointer that could not be written to the disk, and the pointer that the disk has instead."""

    intended: Pointer
    on_disk: Pointer | None


class UnpersistedFailures:
    """Failures that a full disk could not store, one for each cache at most.

    The status is built from these in memory.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._failures: dict[CacheRef, _UnpersistedFailure] = {}

    def record(self, wanted: WantedCache, failure: Failure | None) -> None:
        """Remember a failure that is not on the disk; forget it after a success, or once a failure is on the disk."""
        if failure is None or failure.persisted:
            self._failures.pop(wanted.ref, None)
            return
        try:
            on_disk = load_pointer(self._layout, wanted.ref)
        except OSError:  # the caller counts the ends of other pulls too
            return
        if failure.still_served and on_disk is not None and on_disk.state is CacheState.READY:
            # Pods get the files that the pointer on disk names, so the published state stays Ready.
            intended = replace(on_disk, message=serve_revoked_message(failure.reason, failure.message))
        else:
            intended = make_pointer(wanted, wanted.digest or "", CacheState.FAILED, failure.reason, failure.message)
        self._failures[wanted.ref] = _UnpersistedFailure(intended, on_disk)

    def overlay(self, observed: Mapping[CacheRef, Observed]) -> dict[CacheRef, Observed]:
        """Return the observed state with these failures in place of the older pointers on the disk."""
        result = dict(observed)
        for ref, failure in self._failures.items():
            if ref in result and result[ref].pointer == failure.on_disk:
                result[ref] = replace(result[ref], pointer=failure.intended)
        return result

    def retain_only(self, refs: Container[CacheRef]) -> None:
        """Forget the failures of every cache that is not among `refs`."""
        self._failures = {ref: failure for ref, failure in self._failures.items() if ref in refs}
