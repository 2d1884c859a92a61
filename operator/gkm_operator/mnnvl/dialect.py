"""Read the annotations that enroll a PodCliqueSet in ComputeDomains, in both dialects. Pure.

`grove.io/auto-mnnvl: enabled` puts the whole set into one domain for each replica. `grove.io/mnnvl-group: NAME`, on the
set, a scaling group or a clique, puts cliques into the domain of a group; the most specific one is used, and `none`
withdraws. So `auto-mnnvl: enabled` acts like a group without a name on the set.

Admission adds annotations where there are none, and warns of annotations without an effect. It must never replace a
user's.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gkm.api.grove import AnnotatedPart, CliqueTemplate, PodCliqueSet, ScalingGroupTemplate
from gkm.api.mnnvl_metadata import AUTO_MNNVL, MNNVL_GROUP

from gkm_operator.mnnvl.gpu_requests import DeviceClasses, GPURequests, is_elsewhere, no_device_classes

ENABLED, DISABLED, NONE = "enabled", "disabled", "none"
WHOLE_SET = ""
"""The group name for a domain of a whole replica (auto-mnnvl)."""

MAX_GROUP_LENGTH = 63
MAX_SET_NAME = 63
"""Limit of characters of a set's name, because label values are limited; Grove's own limit is 45."""
_MAX_EXCERPT = 80
_AGAIN = "delete the PodCliqueSet and create it again"
_GROUP = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", re.ASCII)

_SHOWN = 4


def group_of(
    pod_clique_set: PodCliqueSet, clique: CliqueTemplate | None, scaling_group: ScalingGroupTemplate | None
) -> str | None:
    """Return the MNNVL group of a clique template in a set; None if its pods join no ComputeDomain.

    A template that the set does not have any more (None) inherits the annotations above it.
    """
    layers = (part.annotations for part in (clique, scaling_group, pod_clique_set.metadata) if part)
    named = nearest_group(layers)
    if named is None:
        return WHOLE_SET if pod_clique_set.metadata.annotation(AUTO_MNNVL) == ENABLED else None
    return None if named == NONE else named


def nearest_group(layers: Iterable[Mapping[str, str] | None]) -> str | None:
    """Return the annotation mnnvl-group of the first part that has one, from the clique up to the set.

    None if no part has it.
    """
    return next((layer[MNNVL_GROUP] for layer in layers if layer and MNNVL_GROUP in layer), None)


def names_groups(pod_clique_set: PodCliqueSet) -> bool:
    """Return whether any part of the PodCliqueSet has the annotation mnnvl-group."""
    return any(MNNVL_GROUP in part.annotations for part in pod_clique_set.parts())


def enrolls(pod_clique_set: PodCliqueSet) -> bool:
    """Return whether any annotation of a PodCliqueSet requests a ComputeDomain."""
    return any(map(_enrolls, pod_clique_set.parts()))


def creation_problems(pod_clique_set: PodCliqueSet, *, enabled: bool) -> Iterator[str]:
    """Yield the reasons to refuse a new PodCliqueSet, invalid values first; `enabled` is the feature's switch."""
    yield from _problems(pod_clique_set, tuple(pod_clique_set.parts()), enabled=enabled)
    if len(pod_clique_set.metadata.name) > MAX_SET_NAME and enrolls(pod_clique_set):
        yield (
            f"the name of a PodCliqueSet with ComputeDomains has at most {MAX_SET_NAME} characters, because a label "
            f"contains it; shorten it, or opt out with {AUTO_MNNVL}: {DISABLED}"
        )


def update_problems(old: PodCliqueSet, new: PodCliqueSet, *, enabled: bool) -> Iterator[str]:
    """Yield the reasons to refuse an update of a PodCliqueSet: changes of annotations, all of which are immutable.

    Parts are paired by kind and name. A part that the update adds follows the rules of creation; an existing part
    follows no rules, because an update by a controller must not fail for a user's old text.
    """
    before = {(part.kind, part.name): part.annotations for part in old.parts()}
    added = []
    for part in new.parts():
        if (annotations := before.get((part.kind, part.name))) is None:
            added.append(part)
            continue
        for key in _keys(part):
            was, now = annotations.get(key), part.annotations.get(key)
            if was == now:
                continue
            if was is None:
                yield f"{key} of {part_excerpt(part)} cannot be added to an existing PodCliqueSet; {_AGAIN}"
            elif now is None:
                yield f"{key} of {part_excerpt(part)} cannot be removed; {_AGAIN}"
            else:
                yield f"{key} of {part_excerpt(part)} is immutable: it is {_excerpt(was)}; {_AGAIN}"
    yield from _problems(new, added, enabled=enabled)


def invalid_group(group: str) -> str | None:
    """Return why a value of mnnvl-group is invalid, None if it is valid."""
    if not group:
        return "must not be empty"
    if len(group) > MAX_GROUP_LENGTH or not _GROUP.fullmatch(group):
        return f"is not a valid DNS-1123 label: {_excerpt(group)}"
    return None


def _problems(pod_clique_set: PodCliqueSet, parts: Sequence[AnnotatedPart], *, enabled: bool) -> Iterator[str]:
    for part in parts:
        yield from _invalid_values(part)
    if not enabled and any(map(_enrolls, parts)):
        yield (
            "MNNVL is not enabled in this cluster: remove the annotation, or let an administrator set "
            "network.autoMNNVLEnabled"
        )
    auto = pod_clique_set.metadata.annotation(AUTO_MNNVL)
    for part in parts:
        group = part.annotations.get(MNNVL_GROUP)
        if group is None:
            continue
        if (auto == ENABLED and group == NONE and _is_set(part)) or (auto == DISABLED and group != NONE):
            yield (
                f"{AUTO_MNNVL}: {auto} of the PodCliqueSet contradicts {MNNVL_GROUP}: {_excerpt(group)} of "
                f"{part_excerpt(part)}; remove one of them"
            )


def _invalid_values(part: AnnotatedPart) -> Iterator[str]:
    auto = part.annotations.get(AUTO_MNNVL)
    if auto is not None and _is_set(part) and auto not in {ENABLED, DISABLED}:
        yield f'{AUTO_MNNVL} of the PodCliqueSet must be "{ENABLED}" or "{DISABLED}", not {_excerpt(auto)}'
    if (problem := invalid_group(part.annotations.get(MNNVL_GROUP, NONE))) is not None:
        yield f"{MNNVL_GROUP} of {part_excerpt(part)} {problem}"


def _enrolls(part: AnnotatedPart) -> bool:
    return part.annotations.get(MNNVL_GROUP, NONE) != NONE or (
        _is_set(part) and part.annotations.get(AUTO_MNNVL) == ENABLED
    )


def _keys(part: AnnotatedPart) -> tuple[str, ...]:
    """Return the annotations in use on a part: auto-mnnvl belongs to the whole set."""
    return (AUTO_MNNVL, MNNVL_GROUP) if _is_set(part) else (MNNVL_GROUP,)


def _is_set(part: AnnotatedPart) -> bool:
    return part.kind == "PodCliqueSet"


def part_excerpt(part: AnnotatedPart) -> str:
    """Return the kind and name of a part of a PodCliqueSet for a message, escaped and short."""
    return f"{part.kind} {_excerpt(part.name)}" if part.name else f"the {part.kind}"


def _excerpt(value: str) -> str:
    return repr(value[:_MAX_EXCERPT])


def default_annotation(
    pod_clique_set: PodCliqueSet, gpus: GPURequests, classes: DeviceClasses = no_device_classes, *, operation: str
) -> str | None:
    """Return the value of the annotation auto-mnnvl to add to a new PodCliqueSet, None to add no annotation.

    Only CREATE enrolls: a set from before the feature stays as it is. A set that names a group, or `none`, has decided.
    """
    settings = gpus.settings
    enrolls = (
        operation == "CREATE"
        and settings.auto_mnnvl_enabled
        and settings.mnnvl_dialect == "auto-mnnvl"
        and pod_clique_set.metadata.annotation(AUTO_MNNVL) is None
        and not names_groups(pod_clique_set)
        and bool(gpus.cliques(pod_clique_set, classes))
    )
    return ENABLED if enrolls else None


def scaling_group_annotations(pod_clique_set: PodCliqueSet, scaling_group: str) -> Mapping[str, str]:
    """Return the MNNVL annotations of a set that a PodCliqueScalingGroup gets; `scaling_group` is its template's name.

    They show users and Grove the group in use; GKM itself resolves groups from the set.
    """
    template = next((found for found in pod_clique_set.scaling_groups if found.name == scaling_group), None)
    layers = (template.annotations if template else None, pod_clique_set.metadata.annotations)
    found = {AUTO_MNNVL: pod_clique_set.metadata.annotation(AUTO_MNNVL), MNNVL_GROUP: nearest_group(layers)}
    return {key: value for key, value in found.items() if value is not None}


def warnings(
    pod_clique_set: PodCliqueSet, gpus: GPURequests, classes: DeviceClasses = no_device_classes
) -> Iterator[str]:
    """Yield warnings about a PodCliqueSet's annotations that have no effect, and its claims that GKM does not read."""
    for part in pod_clique_set.parts():
        if part.name and AUTO_MNNVL in part.annotations:
            yield f"{AUTO_MNNVL} has no effect on {part_excerpt(part)}; use {MNNVL_GROUP}"
    yield from unread_sharing(pod_clique_set)
    if enrolls(pod_clique_set) and not gpus.cliques(pod_clique_set, classes):
        yield "no container of the PodCliqueSet requests GPUs, so no pod joins a ComputeDomain"


def unread_sharing(pod_clique_set: PodCliqueSet) -> Iterator[str]:
    """Yield warnings about a set's shared claims in other namespaces: GKM does not know whether they are for GPUs."""
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
