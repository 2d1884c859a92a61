"""Leader election: acquire, renew and release a Lease (gkm.kube.leases has the rules)."""

import logging
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Event, Lock, Thread

from gkm.hoststate.logs import fields
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.leases import LEASES, Lease, LeaseTiming, ObservedLease, can_acquire, expires_at, renewed_spec
from gkm.kube.workqueue import Retry

_LOG = logging.getLogger(__name__)

DEFAULT_TIMING = LeaseTiming()
_JITTER = 1.2


def boottime_seconds() -> float:
    """Return the seconds of CLOCK_BOOTTIME, which includes suspend, as a lease does; CLOCK_MONOTONIC does not.

    Setting the time of day does not change it, so a jump of that clock does not change the leader.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class NotLeading(Retry):
    """This process may not be the leader any more, so it must not write."""


class Elector:
    """One candidate in a leader election by a Lease. The requests of `api` must time out well before `timing.deadline`.

    After `acquire`, a thread renews the lease. `is_leader` becomes false by the clock alone, even while that thread
    waits for a response: the leader must check it before each write and stop, because no other signal reports a lost
    lease. The client of the controllers checks it, and no controller does.
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
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._timing = timing
        self._clock = clock
        self._now = now
        self.succeeds = True
        """Whether a holder before this process may not have released the lease: requests of it may be on their way.

        That holds for a Lease that this process created, too: an earlier one may have been deleted.
        """
        self._observed: ObservedLease | None = None
        self._renewed: float | None = None
        self._lock = Lock()
        self._stop = Event()
        self._thread = Thread(target=self._renew, name="lease", daemon=True)

    @property
    def is_leader(self) -> bool:
        """Return whether this process holds the Lease and has renewed it in time."""
        renewed = self._renewed
        return renewed is not None and self._clock() < renewed + self._timing.deadline

    def check_leading(self) -> None:
        """Raise NotLeading unless this process is the leader; for `gkm.kube.client.connect(before_write=…)`."""
        if not self.is_leader:
            raise NotLeading("this process no longer holds the lease: another process may lead")

    def acquire(self, stop: Event) -> bool:
        """Wait until this process gets the Lease, and renew it from then on; return False if `stop` is set first."""
        while not stop.is_set():
            if self.try_acquire_or_renew():
                _LOG.info("lease acquired", extra=fields(lease=self._name, identity=self._identity))
                self._thread.start()
                return True
            stop.wait(self._pause())
        return False

    def try_acquire_or_renew(self) -> bool:
        """Acquire or renew the Lease once if possible; return whether this process holds it. Never raises."""
        with self._lock:
            # Before the request: the renewal counts from now on, whenever the response comes.
            began = self._clock()
            try:
                is_holder = self._acquire_or_renew()
            except ApiError as error:
                level = logging.INFO if error.conflict else logging.WARNING
                _LOG.log(
                    level, "lease not acquired or renewed, tried again", extra=fields(lease=self._name, why=str(error))
                )
                return False
            if is_holder:
                self._renewed = began
            return is_holder

    def release(self) -> None:
        """Release the Lease, so that another replica can lead at once. Call it after the last write."""
        self._stop.set()
        with self._lock:
            observed, self._renewed = self._observed, None
            if observed is None or observed.lease.spec.holder_identity != self._identity:
                return
            try:
                self._write(observed.lease, {"holderIdentity": "", "leaseDurationSeconds": 1})
            except ApiError as error:
                _LOG.warning(
                    "lease not released, the next leader waits until it expires",
                    extra=fields(lease=self._name, why=str(error)),
                )

    def _pause(self) -> float:
        """Return the seconds until the next attempt, which is at the latest when the lease of another expires."""
        usual = self._timing.retry * random.uniform(1.0, _JITTER)  # noqa: S311 -- spreads load only
        left = expires_at(self._observed, self._timing) - self._clock() if self._observed else 0.0
        return left if 0.0 < left < usual else usual

    def _acquire_or_renew(self) -> bool:
        lease = self._api.find(LEASES, self._name, self._namespace)
        if lease is None:
            # The holder of a lease that was deleted leads until it sees that, or until the lease would have expired.
            if self._observed and not can_acquire(self._observed, self._identity, self._clock(), self._timing):
                return False
            lease = self._create()
        observed = self._observe(lease)
        if lease.spec.holder_identity and lease.spec.holder_identity != self._identity:
            self._renewed = None
        if not can_acquire(observed, self._identity, self._clock(), self._timing):
            return False
        if self._renewed is None:
            self.succeeds = bool(lease.spec.holder_identity) or not lease.spec.acquire_time
        spec = renewed_spec(lease.spec, self._identity, self._timing, self._now())
        self._observe(self._write(lease, spec))
        return True

    def _create(self) -> Lease:
        """Create the lease without a holder, or return the Lease that another process has created meanwhile.

        By an apply, whose request has the name: so the right to create leases can be for this one only.
        """
        metadata = {"name": self._name, "namespace": self._namespace}
        value = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata}
        return self._api.apply(LEASES, value, field_manager=self._name)

    def _write(self, lease: Lease, spec: dict[str, object]) -> Lease:
        """Change the lease; a change since it was read is a conflict."""
        patch = {"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": spec}
        return self._api.merge(LEASES, self._name, patch, self._namespace)

    def _observe(self, lease: Lease) -> ObservedLease:
        """Record a lease with the time after it was read, for its holder may have renewed it at this instant.

        With the time before the request, a slow response would expire the lease before its holder stops.
        """
        if self._observed is None or self._observed.lease.metadata.resource_version != lease.metadata.resource_version:
            self._observed = ObservedLease(lease, self._clock())
        return self._observed

    def _renew(self) -> None:
        while not self._stop.wait(self._timing.retry):
            self.try_acquire_or_renew()
