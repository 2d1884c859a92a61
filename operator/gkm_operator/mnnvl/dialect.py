"""The annotations that enrol a PodCliqueSet, in both dialects, and the domain that each clique belongs to.

`grove.io/auto-mnnvl: enabled` puts the whole set into one domain for each replica. `grove.io/mnnvl-group: NAME`, on the
set, a scaling group or a clique, puts cliques into the domain of a group; the most specific one counts, and `none`
withdraws. So `auto-mnnvl: enabled` acts like a group without a name on the set.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from gkm.api.grove import PodCliqueSet
from gkm.api.mnnvl_metadata import AUTO_MNNVL, MNNVL_GROUP

ENABLED, DISABLED, NONE = "enabled", "disabled", "none"
WHOLE_SET = ""
"""The group of a domain that belongs to a whole replica (auto-mnnvl)."""

MAX_GROUP_LENGTH = 63
_GROUP = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", re.ASCII)


def group_of(pod_clique_set: PodCliqueSet, clique: str) -> str | None:
    """Return the group of the clique template with exactly this name; None if it is in no domain.

    A template that the set does not have inherits the annotations of the set.
    """
    template = next((found for found in pod_clique_set.cliques if found.name == clique), None)
    scaling_group = pod_clique_set.scaling_group_of(clique)
    layers = (
        template.annotations if template else None,
        scaling_group.annotations if scaling_group else None,
        pod_clique_set.metadata.annotations,
    )
    named = nearest_group(layers)
    if named is None:
        return WHOLE_SET if pod_clique_set.metadata.annotation(AUTO_MNNVL) == ENABLED else None
    return None if named == NONE else named


def nearest_group(layers: Iterable[Mapping[str, str] | None]) -> str | None:
    """Return the annotation mnnvl-group of the first layer that has one; None without any."""
    return next((layer[MNNVL_GROUP] for layer in layers if layer and MNNVL_GROUP in layer), None)


def speaks_groups(pod_clique_set: PodCliqueSet) -> bool:
    """Return whether any part of the set has the annotation mnnvl-group."""
    return any(MNNVL_GROUP in annotations for _, annotations in pod_clique_set.annotations_by_place())


def enrols(pod_clique_set: PodCliqueSet) -> bool:
    """Return whether an annotation requests a domain."""
    return pod_clique_set.metadata.annotation(AUTO_MNNVL) == ENABLED or any(
        annotations.get(MNNVL_GROUP, NONE) != NONE for _, annotations in pod_clique_set.annotations_by_place()
    )


def creation_problems(pod_clique_set: PodCliqueSet, *, enabled: bool) -> Iterator[str]:
    """Yield the reasons to refuse a new set; invalid values come first. `enabled` is the switch of the feature."""
    yield from _invalid_values(pod_clique_set)
    if not enabled and enrols(pod_clique_set):
        yield (
            "MNNVL is not enabled in this cluster: remove the annotation, or let an administrator set "
            "network.autoMNNVLEnabled"
        )
    yield from _contradictions(pod_clique_set)


def _invalid_values(pod_clique_set: PodCliqueSet) -> Iterator[str]:
    auto = pod_clique_set.metadata.annotation(AUTO_MNNVL)
    if auto is not None and auto not in {ENABLED, DISABLED}:
        yield f'{AUTO_MNNVL} of the PodCliqueSet must be "{ENABLED}" or "{DISABLED}", not {_shown(auto)}'
    for place, annotations in pod_clique_set.annotations_by_place():
        if (problem := invalid_group(annotations.get(MNNVL_GROUP, NONE))) is not None:
            yield f"{MNNVL_GROUP} of {place} {problem}"


def invalid_group(group: str) -> str | None:
    """Return what is wrong with a value of mnnvl-group, None if it is valid."""
    if not group:
        return "must not be empty"
    if len(group) > MAX_GROUP_LENGTH or not _GROUP.fullmatch(group):
        return f"is not a valid DNS-1123 label: {_shown(group)}"
    return None


def _contradictions(pod_clique_set: PodCliqueSet) -> Iterator[str]:
    auto = pod_clique_set.metadata.annotation(AUTO_MNNVL)
    if auto == ENABLED and pod_clique_set.metadata.annotation(MNNVL_GROUP) == NONE:
        yield f"{AUTO_MNNVL}: {ENABLED} contradicts {MNNVL_GROUP}: {NONE} of the same PodCliqueSet; keep one of them"
    if auto == DISABLED:
        for place, annotations in pod_clique_set.annotations_by_place():
            if (group := annotations.get(MNNVL_GROUP, NONE)) != NONE:
                yield f"{AUTO_MNNVL}: {DISABLED} contradicts {MNNVL_GROUP}: {_shown(group)} of {place}; keep one"


def update_problems(old: PodCliqueSet, new: PodCliqueSet) -> Iterator[str]:
    """Yield the annotations that an update adds, removes or changes: all are immutable. Parts are paired by name."""
    before, after = dict(old.annotations_by_place()), dict(new.annotations_by_place())
    for place in before.keys() & after.keys():
        for key in (AUTO_MNNVL, MNNVL_GROUP):
            was, now = before[place].get(key), after[place].get(key)
            if was == now:
                continue
            if was is None:
                yield f"{key} of {place} cannot be added to an existing PodCliqueSet; delete and create it again"
            elif now is None:
                yield f"{key} of {place} cannot be removed; delete the PodCliqueSet and create it again"
            else:
                yield f"{key} of {place} is immutable: it is {_shown(was)}"


def _shown(value: str) -> str:
    return repr(value[:80])
