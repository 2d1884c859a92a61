"""One leader among replicas, by a Lease (coordination.k8s.io/v1): who holds it works, the others stand ready.

After client-go's tools/leaderelection, with its guarantees and no more: clocks that run at different speeds, or a
process that is stopped for longer than the lease, can make two leaders for a moment, so whatever a leader writes must
stand being written twice. Times in the Lease are for people: whether a holder is alive is told by changes seen, against
our own clock, so that clocks of different machines need not agree.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from gkm.api.meta import ObjectMeta
from gkm.kube.resources import Resource


class LeaseSpec(Struct, frozen=True, rename="camel"):
    """What is read of a Lease: whose it is, for how many seconds after each renewal, and how often it went over."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Struct, frozen=True):
    """A Lease, as it is read."""

    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


LEASES: Resource[Lease] = Resource("coordination.k8s.io/v1", "Lease", "leases", namespaced=True, type=Lease)


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """How long things take, in seconds.

    A lease counts for `duration` after it was last renewed; a leader that has not renewed it for `deadline` ends; a try
    is made every `retry`, and when a lease runs out. A leader that is killed is followed within duration + retry and
    some: its last renewal may be seen so much later (with jitter, 2.4 seconds of these).
    """

    duration: float = 15.0
    deadline: float = 10.0
    retry: float = 2.0


@dataclass(frozen=True, slots=True)
class ObservedLease:
    """A Lease as it was last seen to change, and when it had been read: seconds of our own clock."""

    lease: Lease
    observed_at: float


def can_acquire(observed: ObservedLease, identity: str, now: float, timing: LeaseTiming) -> bool:
    """Return whether a candidate may write itself into a lease: it is its own, nobody's, or has run out. Pure.

    A lease that says a longer duration than ours is believed: its holder may run with other terms.
    """
    spec = observed.lease.spec
    if not spec.holder_identity or spec.holder_identity == identity:
        return True
    return now >= expires_at(observed, timing)


def expires_at(observed: ObservedLease, timing: LeaseTiming) -> float:
    """Return when a lease does not count any more, if it is not renewed. Pure."""
    return observed.observed_at + max(timing.duration, float(observed.lease.spec.lease_duration_seconds or 0))


def renewed_spec(old: LeaseSpec, identity: str, timing: LeaseTiming, moment: datetime) -> dict[str, Any]:
    """Return what a Lease says when `identity` takes or renews it."""
    now = micro_time(moment)
    is_transition = old.holder_identity != identity
    return {
        "holderIdentity": identity,
        "leaseDurationSeconds": int(timing.duration),
        "acquireTime": now if is_transition or not old.acquire_time else old.acquire_time,
        "renewTime": now,
        "leaseTransitions": (old.lease_transitions or 0) + (1 if is_transition and old.acquire_time else 0),
    }


def micro_time(moment: datetime) -> str:
    """Return a moment as metav1.MicroTime has it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


Now = Callable[[], datetime]
