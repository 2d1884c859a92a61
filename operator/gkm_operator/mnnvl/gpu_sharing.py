"""Which pods of a PodCliqueSet get claims for GPUs from Grove (`resourceSharing`). Pure.

Grove adds these claims to pods, and never to PodCliques, so no specification of a PodClique shows them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gkm.api.grove import CliqueTemplate, PodCliqueSet, ScalingGroupTemplate, SharedClaim
from gkm.api.pod_specs import PodClaim


@dataclass(frozen=True, slots=True)
class _Reach:
    """The children that claims of one owner reach."""

    everything: bool
    names: frozenset[str]

    def includes(self, *names: str) -> bool:
        return self.everything or not self.names.isdisjoint(names)


class GPUSharing:
    """The reach of all claims for GPUs that the pods of one set share.

    `is_gpu` returns whether device classes are those of GPUs, `classes` those of a claim template. It raises what
    `classes` raises.
    """

    def __init__(
        self,
        pod_clique_set: PodCliqueSet,
        is_gpu: Callable[[Iterable[str]], bool],
        classes: Callable[[PodClaim], Iterable[str]],
    ) -> None:
        template, namespace = pod_clique_set.spec.template, pod_clique_set.metadata.namespace
        own = {claim.name: claim.template_spec.spec for claim in template.resource_claim_templates or ()}

        def is_for_gpus(claim: SharedClaim) -> bool:
            if not claim.namespace and claim.name in own:
                return is_gpu(own[claim.name].device_classes())
            return not is_elsewhere(claim, namespace) and is_gpu(classes(PodClaim(claim.name, claim.name)))

        def reach(sharing: Iterable[SharedClaim] | None) -> _Reach:
            return _reach(claim for claim in sharing or () if is_for_gpus(claim))

        self._set = reach(template.resource_sharing)
        self._groups = {group.name: reach(group.resource_sharing) for group in pod_clique_set.scaling_groups}
        self._cliques = {
            clique.name for clique in pod_clique_set.cliques if any(map(is_for_gpus, clique.resource_sharing or ()))
        }

    def reaches(self, clique: CliqueTemplate, scaling_group: ScalingGroupTemplate | None) -> bool:
        """Return whether every container of the pods of a clique, in a scaling group or in none, gets such a claim."""
        if scaling_group is None:
            return clique.name in self._cliques or self._set.includes(clique.name)
        return (
            clique.name in self._cliques
            or self._groups[scaling_group.name].includes(clique.name)
            or self._set.includes(clique.name, scaling_group.name)
        )


def is_elsewhere(claim: SharedClaim, namespace: str) -> bool:
    """Return whether a claim is made from a template of another namespace, which GKM does not read for a tenant."""
    return claim.namespace not in {"", namespace}


def _reach(claims: Iterable[SharedClaim]) -> _Reach:
    """Return what claims reach together: hostile sets have many claims and many children."""
    everything, names = False, set[str]()
    for claim in claims:
        if claim.filter is None:
            everything = True
        else:
            names.update(claim.filter.child_clique_names or (), claim.filter.child_scaling_group_names or ())
    return _Reach(everything, frozenset(names))
