"""Convert HyperNode objects of the API server to values, GKM's own and others. Pure.

Members that a label selector or a pattern selects are not followed: no scheduler fails because of a shared node, and a
stranger's selectors can take minutes.
"""

from collections.abc import Iterable, Sequence

from gkm.api.hypernodes import HyperNodeMember, HyperNodeObject
from gkm.topology.hypernodes import SOURCE, SOURCE_LABEL, HyperNode, Member

SELECTED = Member("HyperNode", "")
"""Stands for the members of ours that a selector selects. It is no HyperNode, so the order of writes removes it first:
only others can have added it."""


def is_ours(found: HyperNodeObject) -> bool:
    """Return whether GKM wrote a HyperNode, and so may change it."""
    return found.labels.get(SOURCE_LABEL) == SOURCE


def own(objects: Iterable[HyperNodeObject], levels: Sequence[str]) -> dict[str, HyperNode]:
    """Return GKM's own HyperNodes by name.

    If all lack tier names, the installed kind has none, and tiers show the levels.
    """
    ours = [found for found in objects if is_ours(found)]
    named = any(found.spec.tier_name for found in ours)
    return {found.name: _value(found, _members(found), () if named else levels) for found in ours}


def foreign(objects: Iterable[HyperNodeObject]) -> dict[str, HyperNode]:
    """Return the HyperNodes that others wrote, by name."""
    return {found.name: value(found) for found in objects if not is_ours(found)}


def value(found: HyperNodeObject) -> HyperNode:
    """Convert a HyperNode object; members that a selector selects are not included."""
    return _value(found, _members(found) - {SELECTED})


def _value(found: HyperNodeObject, members: Iterable[Member], levels: Sequence[str] = ()) -> HyperNode:
    tier = found.spec.tier
    name = found.spec.tier_name or (levels[tier - 1] if 0 < tier <= len(levels) else "")
    return HyperNode(found.name, name, tuple(sorted(members)), tier)


def _members(found: HyperNodeObject) -> set[Member]:
    return {Member(member.type, name) if (name := _exact(member)) else SELECTED for member in found.spec.members or ()}


def _exact(member: HyperNodeMember) -> str:
    return member.selector.exact_match.name if member.selector.exact_match else ""
