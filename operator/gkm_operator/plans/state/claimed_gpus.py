"""Add the GPUs that ResourceClaims hold to the GPUs that pods use, by node and by run."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from gkm.kube.resources import CLAIMS
from gkm.topology.claims import ResourceClaim, gpus_by_holder
from gkm.topology.usage import with_claims

from gkm_operator.plans.state.free_capacity import PodUsage
from gkm_operator.plans.state.objects import RunKey
from gkm_operator.pods import WatchedPod

CLAIMED = CLAIMS.of(ResourceClaim)


class _Holder(NamedTuple):
    """A run, and whether its pod is being deleted."""

    run: RunKey
    terminating: bool


def with_claimed_gpus(
    usage: PodUsage, claims: Iterable[ResourceClaim], pod: Callable[[str, str], WatchedPod | None]
) -> PodUsage:
    """Return the GPU usage of pods plus the GPUs of ResourceClaims; `pod` returns a pod by name and namespace."""

    def holder(namespace: str, name: str) -> _Holder | None:
        found = pod(name, namespace)
        if found is None or not found.metadata.run:
            return None
        return _Holder(RunKey(namespace, found.metadata.run), found.metadata.terminating)

    held = gpus_by_holder(claims, holder)
    if not held:
        return usage
    runs, terminating = ({run: dict(gpus) for run, gpus in sums.items()} for sums in (usage.runs, usage.terminating))
    for one, gpus in held.items():
        if one is not None:
            _add(runs, one.run, gpus)
            if one.terminating:
                _add(terminating, one.run, gpus)
    return PodUsage(with_claims(usage.usage, held.values()), runs, terminating)


def _add(sums: dict[RunKey, dict[str, int]], run: RunKey, gpus: Mapping[str, int]) -> None:
    own = sums.setdefault(run, {})
    for node, count in gpus.items():
        own[node] = own.get(node, 0) + count
