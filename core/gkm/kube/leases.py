"""The rules of leader election by a Lease (coordination.k8s.io/v1): its holder works, the other replicas wait.

They follow client-go's tools/leaderelection, with its guarantees and no more: clocks of different speed, or a process
that is stopped for longer than the lease, can make two leaders for a moment. So each write of a leader must tolerate a
second one. The times in the Lease are for people: a candidate measures the time since the last change of the Lease by
its own clock, so the clocks of machines need not agree.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from gkm.api.meta import ObjectMeta
from gkm.kube.resources import Resource


class LeaseSpec(Struct, frozen=True, rename="camel"):
    """The spec of a Lease: its holder, its duration after each renewal, and the number of its transitions."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Struct, frozen=True):
    """A Lease of the Kubernetes API, by which replicas elect their leader."""

    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


LEASES: Resource[Lease] = Resource("coordination.k8s.io/v1", "Lease", "leases", namespaced=True, type=Lease)


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """Times of leader election by a Lease, in seconds.

    A lease is valid for `duration` after its last renewal. A leader that has not renewed it for `deadline` stops.
    Candidates try every `retry`, and when a lease expires. After a leader is killed, another leads within duration +
    retry, plus the delay until a candidate saw the last renewal (2.4 seconds, with jitter).
    """

    duration: float = 15.0
    deadline: float = 10.0
    retry: float = 2.0


@dataclass(frozen=True, slots=True)
class ObservedLease:
    """A Lease as last changed, and when this process saw that change, in seconds of its clock."""

    lease: Lease
    observed_at: float


def can_acquire(observed: ObservedLease, identity: str, now: float, timing: LeaseTiming) -> bool:
    """Return whether a candidate may take the lease: it holds it, no process holds it, or it has expired. Pure.

    A longer duration in the Lease than in `timing` applies: its holder may run with another configuration.
    """
    spec = observed.lease.spec
    if not spec.holder_identity or spec.holder_identity == identity:
        return True
    return now >= expires_at(observed, timing)


def expires_at(observed: ObservedLease, timing: LeaseTiming) -> float:
    """Return when the lease expires without a renewal, in seconds of this process's clock. Pure."""
    return observed.observed_at + max(timing.duration, float(observed.lease.spec.lease_duration_seconds or 0))


def renewed_spec(old: LeaseSpec, identity: str, timing: LeaseTiming, moment: datetime) -> dict[str, Any]:
    """Return the Lease spec with which `identity` acquires or renews the lease. Pure."""
    now = moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    is_transition = old.holder_identity != identity
    return {
        "holderIdentity": identity,
        "leaseDurationSeconds": int(timing.duration),
        "acquireTime": now if is_transition or not old.acquire_time else old.acquire_time,
        "renewTime": now,
        "leaseTransitions": (old.lease_transitions or 0) + (1 if is_transition and old.acquire_time else 0),
    }
