"""Which cache the pods of a node get for a name: mounts and captures ask the same question."""

from pathlib import Path

import pytest
from gkm.hoststate import families, pointers
from gkm.hoststate.families import FamilyChoice
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer

FAMILY = CacheRef("ml-apps", "llama")
MEMBER = CacheRef("ml-apps", "llama-2")


def node(path: Path, *known: CacheRef, chosen: CacheRef | None = None) -> Layout:
    """Return a node with pointers of these caches, and a choice."""
    layout = Layout(path)
    for ref in known:
        pointers.save(layout, Pointer(ref, "registry.example/x:1", CacheState.READY))
    if chosen is not None:
        families.save(layout, FamilyChoice(FAMILY, chosen))
    return layout


@pytest.mark.parametrize(
    ("known", "chosen", "expected"),
    [
        ([], None, None),
        ([], MEMBER, None),
        ([FAMILY], None, FAMILY),
        ([FAMILY], MEMBER, FAMILY),
        ([FAMILY, MEMBER], None, FAMILY),
        ([FAMILY, MEMBER], MEMBER, MEMBER),
        ([FAMILY, MEMBER], FAMILY, FAMILY),
        ([MEMBER], MEMBER, MEMBER),
    ],
)
def test_the_chosen_member_comes_before_the_cache_of_the_name(
    tmp_path: Path, known: list[CacheRef], chosen: CacheRef | None, expected: CacheRef | None
) -> None:
    found = families.chosen(node(tmp_path, *known, chosen=chosen), FAMILY)
    assert (found.ref if found else None) == expected


@pytest.mark.parametrize("damaged", ["choice", "member"])
def test_a_damaged_file_is_not_known(tmp_path: Path, damaged: str) -> None:
    layout = node(tmp_path, FAMILY, MEMBER, chosen=MEMBER)
    path = layout.family(FAMILY) if damaged == "choice" else layout.pointer(MEMBER)
    path.write_text("{")
    with pytest.raises(UnreadableState, match=path.name):
        families.chosen(layout, FAMILY)
