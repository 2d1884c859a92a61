"""From a Run, as people write it, to what is planned: which nodes it may use, and its sizes. Pure."""

from collections.abc import Sequence

from gkm.api.plans import PlanRequest
from gkm.api.runs import RunSelector, RunSpec
from gkm.api.topology_settings import MixGroup
from gkm.packing.mix import GroupKind
from gkm.packing.values import Ceiling, Malleability, Policy, Request, Within
from gkm.topology.eligibility import NodeDemand, Scope, Selector
from gkm.topology.pod_fit import PodDemand
from gkm.topology.quantities import thousandths
from gkm.topology.taints import DEFAULT_TOLERATIONS, Toleration


def demand(spec: RunSpec) -> NodeDemand:
    """Return which nodes a run may use.

    Raises:
        ValueError: two of its scopes share a name, or a request is no quantity.
    """
    tolerations: tuple[Toleration, ...] = DEFAULT_TOLERATIONS
    if spec.tolerations is not None:
        tolerations = tuple(
            Toleration(asked.key, asked.operator, asked.value, asked.effect) for asked in spec.tolerations
        )
    scopes = tuple(Scope(scope.name, _selector(scope.selector)) for scope in spec.scopes)
    return NodeDemand(spec.flavor, _selector(spec.selector), scopes, tolerations, pod_of(spec))


def request(asked: RunSpec | PlanRequest, policy: str) -> Request:
    """Return the sizes of a run, as its author or its plan has them.

    Raises:
        ValueError: its sizes do not divide, in one sentence.
    """
    malleable, within = asked.malleability, asked.within
    return Request(
        gpus=asked.gpus,
        pod_gpus=asked.gpus_per_pod,
        group_gpus=asked.group_gpus or asked.gpus_per_pod,
        spares=asked.spares,
        may_spread=asked.allow_cross_group_spread and within != "domain",
        policy=Policy(policy),
        ceilings=tuple(Ceiling(scope.name, scope.max_gpus) for scope in asked.scopes),
        malleability=Malleability(malleable.step_gpus, malleable.min_gpus) if malleable else None,
        within=Within(within) if within and within != "domain" else None,
        balanced=asked.balanced,
    )


def kinds(mix: Sequence[MixGroup]) -> tuple[GroupKind, ...]:
    """Return the groups that users ask for, as fragmentation is measured against."""
    return tuple(GroupKind(group.gpus, group.gpus_per_pod, group.weight) for group in mix)


def pod_of(spec: RunSpec) -> PodDemand:
    """Return one pod of a run.

    Raises:
        ValueError: a quantity is invalid.
    """
    asked = spec.requests
    return PodDemand(
        spec.gpus_per_pod,
        None if asked.cpu is None else thousandths(asked.cpu, "CPUs"),
        None if asked.memory is None else thousandths(asked.memory, "bytes"),
    )


def _selector(selector: RunSelector) -> Selector:
    return Selector(selector.region, selector.cluster, selector.labels)
