"""Annotations that admission adds, and those that have no effect. Pure; must never replace a user's annotation."""

from collections.abc import Iterator, Mapping

from gkm.api.grove import PodCliqueSet
from gkm.api.mnnvl_metadata import AUTO_MNNVL, MNNVL_GROUP

from gkm_operator.mnnvl import dialect
from gkm_operator.mnnvl.gpu_requests import DeviceClasses, GPURequests, no_device_classes
from gkm_operator.mnnvl.gpu_sharing import is_elsewhere

_SHOWN = 4


def default_annotation(
    pod_clique_set: PodCliqueSet, gpus: GPURequests, classes: DeviceClasses = no_device_classes, *, operation: str
) -> str | None:
    """Return the value of auto-mnnvl to add to a set, None to add none.

    Only CREATE enrolls: a set from before the feature stays as it is. A set that names a group, or `none`, has decided.
    """
    settings = gpus.settings
    enrolls = (
        operation == "CREATE"
        and settings.auto_mnnvl_enabled
        and settings.mnnvl_dialect == "auto-mnnvl"
        and pod_clique_set.metadata.annotation(AUTO_MNNVL) is None
        and not dialect.names_groups(pod_clique_set)
        and bool(gpus.cliques(pod_clique_set, classes))
    )
    return dialect.ENABLED if enrolls else None


def scaling_group_annotations(pod_clique_set: PodCliqueSet, scaling_group: str) -> Mapping[str, str]:
    """Return the annotations of the set that a PodCliqueScalingGroup gets, by the name of its template.

    They show users and Grove what counts; GKM itself resolves groups from the set.
    """
    template = next((found for found in pod_clique_set.scaling_groups if found.name == scaling_group), None)
    layers = (template.annotations if template else None, pod_clique_set.metadata.annotations)
    found = {
        AUTO_MNNVL: pod_clique_set.metadata.annotation(AUTO_MNNVL),
        MNNVL_GROUP: dialect.nearest_group(layers),
    }
    return {key: value for key, value in found.items() if value is not None}


def warnings(
    pod_clique_set: PodCliqueSet, gpus: GPURequests, classes: DeviceClasses = no_device_classes
) -> Iterator[str]:
    """Yield the annotations without an effect. Grove accepts them, too."""
    for part in pod_clique_set.parts():
        if part.name and AUTO_MNNVL in part.annotations:
            yield f"{AUTO_MNNVL} has no effect on {dialect.part_excerpt(part)}; use {MNNVL_GROUP}"
    yield from unread_sharing(pod_clique_set)
    if dialect.enrolls(pod_clique_set) and not gpus.cliques(pod_clique_set, classes):
        yield "no container of the PodCliqueSet requests GPUs, so no pod joins a ComputeDomain"


def unread_sharing(pod_clique_set: PodCliqueSet) -> Iterator[str]:
    """Yield the claims that pods of the set share, and of which it is not known whether they are for GPUs."""
    namespace = pod_clique_set.metadata.namespace
    elsewhere = {
        (claim.namespace, claim.name) for claim in pod_clique_set.shared_claims() if is_elsewhere(claim, namespace)
    }
    for template_namespace, name in sorted(elsewhere)[:_SHOWN]:
        yield (
            f"GKM does not read claim template {name[:80]!r} of namespace {template_namespace[:80]!r} "
            "(resourceSharing): pods that request GPUs by it alone join no ComputeDomain; use a template of the "
            "PodCliqueSet or its namespace"
        )
