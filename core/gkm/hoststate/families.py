"""The member of a family that a node chose (docs/decisions/0046-families.md): written by the agent, read by publish.

A family without a member besides the cache of the same name has no such file.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gkm.hoststate import files, pointers
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import Pointer

_READINGS: Final = 3
"""Choices that one search reads: the agent changes one at most once in a pass."""


@dataclass(frozen=True, slots=True)
class FamilyChoice:
    """The chosen member of the family `ref`, in one line `why`."""

    ref: CacheRef
    member: CacheRef
    why: str = ""


def save(layout: Layout, choice: FamilyChoice) -> None:
    """Write a node's chosen member of a family atomically and sync it to the disk; raises OSError."""
    files.replace(layout.family(choice.ref), files.encode({"member": choice.member.name, "why": choice.why}))


def load(layout: Layout, ref: CacheRef) -> FamilyChoice | None:
    """Return the member of a family that the node chose, None if it has recorded no choice.

    Raises:
        UnreadableState: the file exists and cannot be used.
    """
    return files.load(layout.family(ref), lambda value: _from_json(ref, value))


def chosen(layout: Layout, ref: CacheRef) -> Pointer | None:
    """Return the pointer of the cache that pods get for a name: the chosen member, else the cache of this name.

    The agent writes the next choice before it removes a pointer: the choice is read again where a member has none.

    Raises:
        UnreadableState: the choice or a pointer exists and cannot be used.
    """
    for _ in range(_READINGS):
        choice = load(layout, ref)
        if choice is None:
            break
        if (member := pointers.load(layout, choice.member)) is not None:
            return member
    return pointers.load(layout, ref)


def remove(layout: Layout, ref: CacheRef) -> None:
    """Remove the recorded choice of a family; idempotent."""
    path = layout.family(ref)
    path.unlink(missing_ok=True)
    files.remove_empty(path.parent, levels=2)


def refs(layout: Layout) -> Iterator[CacheRef]:
    """Yield every family that has a choice; files that GKM did not make are skipped.

    Raises:
        OSError: a directory cannot be read, so the list would be incomplete.
    """
    return pointers.refs_with(layout, layout.family)


def _from_json(ref: CacheRef, value: Mapping[str, Any]) -> FamilyChoice:
    return FamilyChoice(ref, CacheRef(ref.namespace, str(value["member"])), str(value["why"]))
