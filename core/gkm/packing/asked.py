"""From a Run, as people write it, to what is planned: which nodes it may use, and its sizes. Pure."""

from collections.abc import Sequence

from gkm.api.runs import RunSelector, RunSpec
from gkm.api.topology_settings import MixGroup
from gkm.packing.mix import GroupKind
from gkm.packing.values import Ceiling, Malleability, Policy, Request, Within
from gkm.topology.eligibility import NodeDemand, Scope, Selector
from gkm.topology.taints import DEFAULT_TOLERATIONS, Toleration


def demand(spec: RunSpec) -> NodeDemand:
    """Return which nodes a run may use.

    Raises:
        ValueError: two of its scopes share a name.
    """
    tolerations: tuple[Toleration, ...] = DEFAULT_TOLERATIONS
    if spec.tolerations is not None:
        tolerations = tuple(
            Toleration(asked.key, asked.operator, asked.value, asked.effect) for asked in spec.tolerations
        )
    scopes = tuple(Scope(scope.name, _selector(scope.selector)) for scope in spec.scopes)
    return NodeDemand(spec.flavor, _selector(spec.selector), scopes, tolerations)


def request(spec: RunSpec, policy: str) -> Request:
    """Return the sizes of a run; `policy` is that of runs that name none.

    Raises:
        ValueError: its sizes do not divide, in one sentence.
    """
    malleable = spec.malleability
    return Request(
        gpus=spec.gpus,
        pod_gpus=spec.gpus_per_pod,
        group_gpus=spec.group_gpus or spec.gpus_per_pod,
        spares=spec.spares,
        may_spread=spec.allow_cross_group_spread and spec.within != "domain",
        policy=Policy(spec.policy or policy),
        ceilings=tuple(Ceiling(scope.name, scope.max_gpus) for scope in spec.scopes),
        malleability=Malleability(malleable.step_gpus, malleable.min_gpus) if malleable else None,
        within=Within(spec.within) if spec.within and spec.within != "domain" else None,
        balanced=spec.balanced,
    )


def kinds(mix: Sequence[MixGroup]) -> tuple[GroupKind, ...]:
    """Return the groups that users ask for, as fragmentation is measured against."""
    return tuple(GroupKind(group.gpus, group.gpus_per_pod, group.weight) for group in mix)


def _selector(selector: RunSelector) -> Selector:
    return Selector(selector.region, selector.cluster, selector.labels)
