"""Taking, renewing and giving back the Lease that makes a process the leader (gkm.kube.leases has the rules)."""

import logging
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Event, Lock, Thread

from gkm.hoststate.logs import fields
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.leases import (
    LEASES,
    Lease,
    LeaseSpec,
    LeaseTiming,
    Now,
    ObservedLease,
    can_acquire,
    expires_at,
    renewed_spec,
)

_LOG = logging.getLogger(__name__)

DEFAULT_TIMING = LeaseTiming()
_JITTER = 1.2


def boottime_seconds() -> float:
    """Return seconds that count on while the machine sleeps, as a lease does; CLOCK_MONOTONIC stands still then.

    No clock that anybody sets: a jump of the time of day changes nothing about who leads.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Elector:
    """One candidate. `api` must give up on a request well before `terms.deadline`.

    After `lead` a thread renews the lease. `leads` turns false by the clock alone, whatever that thread waits for: who
    leads must look at it and end, for a process that has lost its lease cannot know what it has not been told.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        name: str,
        identity: str,
        *,
        timing: LeaseTiming = DEFAULT_TIMING,
        clock: Callable[[], float] = boottime_seconds,
        now: Now = lambda: datetime.now(UTC),
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._timing = timing
        self._clock = clock
        self._now = now
        self._observed: ObservedLease | None = None
        self._renewed: float | None = None
        self._lock = Lock()
        self._stop = Event()
        self._thread = Thread(target=self._renew, name="lease", daemon=True)

    @property
    def is_leader(self) -> bool:
        """Return whether the lease is ours, and was renewed in time."""
        renewed = self._renewed
        return renewed is not None and self._clock() < renewed + self._timing.deadline

    def acquire(self, stop: Event) -> bool:
        """Wait until the lease is ours, then keep it; return False when `stop` is set before."""
        while not stop.is_set():
            if self.try_acquire_or_renew():
                _LOG.info("leads", extra=fields(lease=self._name, identity=self._identity))
                self._thread.start()
                return True
            stop.wait(self._pause())
        return False

    def try_acquire_or_renew(self) -> bool:
        """Take or renew the lease if that may be done now; return whether it is ours. Never raises."""
        with self._lock:
            # Before the request: what is written may count from here on, whenever the answer comes.
            began = self._clock()
            try:
                ours = self._acquire_or_renew()
            except ApiError as error:
                level = logging.INFO if error.conflict else logging.WARNING
                _LOG.log(level, "lease not held", extra=fields(lease=self._name, why=str(error)))
                return False
            if ours:
                self._renewed = began
            return ours

    def release(self) -> None:
        """Give the lease back, so that another replica leads at once. Call it when nothing is done any more."""
        self._stop.set()
        with self._lock:
            observed, self._renewed = self._observed, None
            if observed is None or observed.lease.spec.holder_identity != self._identity:
                return
            try:
                self._write(observed.lease, {"holderIdentity": "", "leaseDurationSeconds": 1})
            except ApiError as error:
                _LOG.warning("lease not given back", extra=fields(lease=self._name, why=str(error)))

    def _pause(self) -> float:
        """Return after how many seconds to try again: a lease that runs out before is tried when it does."""
        usual = self._timing.retry * random.uniform(1.0, _JITTER)  # noqa: S311 -- spreads load, hides nothing
        left = expires_at(self._observed, self._timing) - self._clock() if self._observed else 0.0
        return left if 0.0 < left < usual else usual

    def _acquire_or_renew(self) -> bool:
        lease = self._read()
        if lease is None:
            self._observe(self._create())
            return True
        observed = self._observe(lease)
        if not can_acquire(observed, self._identity, self._clock(), self._timing):
            return False
        spec = renewed_spec(lease.spec, self._identity, self._timing, self._now())
        self._observe(self._write(lease, spec))
        return True

    def _read(self) -> Lease | None:
        try:
            return self._api.get(LEASES, self._name, self._namespace)
        except ApiError as error:
            if error.not_found:
                return None
            raise

    def _create(self) -> Lease:
        spec = renewed_spec(LeaseSpec(), self._identity, self._timing, self._now())
        metadata = {"name": self._name, "namespace": self._namespace}
        value = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}
        return self._api.create(LEASES, value)

    def _write(self, lease: Lease, spec: dict[str, object]) -> Lease:
        """Change the lease as it was read; whoever was faster makes it a conflict."""
        patch = {"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": spec}
        return self._api.merge(LEASES, self._name, patch, self._namespace)

    def _observe(self, lease: Lease) -> ObservedLease:
        """Note a lease after it was read: another's time runs from when it was renewed, and that may be this instant.

        Counted from before the request, a slow answer would make the other's lease run out before the other stops.
        """
        if self._observed is None or self._observed.lease.metadata.resource_version != lease.metadata.resource_version:
            self._observed = ObservedLease(lease, self._clock())
        return self._observed

    def _renew(self) -> None:
        while not self._stop.wait(self._timing.retry):
            self.try_acquire_or_renew()
