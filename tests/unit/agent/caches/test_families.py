"""Which member of a family a node gives to its pods, in the order of decision 46."""

from typing import Any

import pytest
from gkm.api.caches import CacheSpec
from gkm.api.errors import Reason
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer
from gkm_agent.caches.families import choices, in_order
from gkm_agent.caches.model import Membership, WantedCache, membership

NAMESPACE = "ml-apps"
FAMILY = CacheRef(NAMESPACE, "llama")
MONDAY, TUESDAY = "2026-11-30T00:00:00Z", "2026-12-01T00:00:00Z"
READY, PULLING, UNFIT, FAILED = CacheState.READY, CacheState.DOWNLOADING, CacheState.INCOMPATIBLE, CacheState.FAILED


def member(
    name: str,
    generation: int = 0,
    *,
    pinned: bool = False,
    created: str = "",
    family: str = "llama",
    held_back: bool = False,
) -> WantedCache:
    place = Membership(family, generation, pinned, created, held_back)
    return WantedCache(CacheRef(NAMESPACE, name), "registry.example/x:1", membership=place)


def chosen(*members: tuple[WantedCache, CacheState | None], reason: str = "") -> str:
    """Return the chosen member; `reason` is that of the pointers that are Pending."""
    pointers = {
        each.ref: Pointer(each.ref, each.image, state, reason=reason if state is CacheState.PENDING else "")
        for each, state in members
        if state is not None
    }
    return choices([each for each, _ in members], pointers)[FAMILY].member.name


OWN = member("llama", family="")


@pytest.mark.parametrize(
    ("members", "name"),
    [
        ([(member("a", 1), READY), (member("b", 2), READY)], "b"),
        ([(member("a", 1), READY), (member("b", 2), PULLING)], "a"),
        ([(member("a", 1), READY), (member("b", 2), UNFIT)], "a"),
        ([(member("a", 1, pinned=True), READY), (member("b", 2), READY)], "a"),
        ([(member("a", 1, pinned=True), FAILED), (member("b", 2), READY)], "b"),
        ([(member("a", 1), READY), (member("b", 2, held_back=True), READY)], "a"),
        ([(OWN, READY), (member("b", 2, held_back=True), READY)], "llama"),
        ([(member("a", 1, held_back=True), READY), (member("b", 2, held_back=True), READY)], "b"),
        ([(member("a", 1), PULLING), (member("b", 2, held_back=True), READY)], "b"),
        ([(member("a", 1), READY), (member("b", 2, pinned=True, held_back=True), READY)], "b"),
        ([(member("a", 1, created=MONDAY), READY), (member("b", 1, created=TUESDAY), READY)], "b"),
        ([(member("b", 1), READY), (member("a", 1), READY)], "a"),
        ([(OWN, READY), (member("a", 1), READY)], "a"),
        ([(OWN, READY), (member("a", 1), UNFIT)], "llama"),
        ([(OWN, UNFIT), (member("a", 1), PULLING)], "a"),
        ([(OWN, UNFIT), (member("a", 1), FAILED)], "llama"),
        ([(member("a", 1), UNFIT), (member("b", 2), FAILED)], "b"),
        ([(member("a", 1), None), (member("b", 2), UNFIT)], "b"),
    ],
)
def test_pods_get_the_first_member_in_order(members: list[tuple[WantedCache, CacheState | None]], name: str) -> None:
    assert chosen(*members) == name
    assert chosen(*reversed(members)) == name


@pytest.mark.parametrize(("reason", "name"), [("", "b"), (Reason.GPU_LOST, "b"), (Reason.REGISTRY_UNAVAILABLE, "a")])
def test_a_member_that_waits_for_a_registry_comes_after_one_that_is_pulled(reason: str, name: str) -> None:
    assert chosen((member("a", 1), PULLING), (member("b", 2), CacheState.PENDING), reason=reason) == name
    assert chosen((OWN, UNFIT), (member("b", 2), CacheState.PENDING), reason=reason) == "b"


def test_a_member_that_is_the_family_itself_counts_once() -> None:
    own = member("llama", 1, family="llama")
    assert chosen((own, READY), (member("a", 2), UNFIT)) == "llama"
    assert len(in_order([own])) == 1
    assert choices([own], {})[FAMILY].member == own.ref


class CountedPointers(dict[CacheRef, Pointer]):
    """Pointers that count how often one is looked up."""

    lookups = 0

    def get(self, *arguments: Any) -> Any:  # noqa: ANN401 -- as in dict
        self.lookups += 1
        return super().get(*arguments)


@pytest.mark.parametrize("families", [1, 5000])
def test_the_work_grows_with_the_number_of_members(families: int) -> None:
    members = [member(f"m{number}", number, family=f"f{number % families}") for number in range(5000)]
    pointers = CountedPointers({each.ref: Pointer(each.ref, each.image, UNFIT) for each in members})
    assert len(choices(members, pointers)) == families
    assert pointers.lookups <= 3 * len(members)


def test_a_cache_that_no_other_joins_is_no_family() -> None:
    assert choices([OWN], {}) == {}


def test_members_of_other_namespaces_and_kinds_do_not_count() -> None:
    others = [
        WantedCache(CacheRef("other", "a"), "x", membership=Membership("llama", 9)),
        WantedCache(CacheRef(None, "b"), "x", membership=Membership("llama", 9)),
    ]
    pointers = {each.ref: Pointer(each.ref, "x", READY) for each in (*others, OWN)}
    found = choices([*others, OWN, member("c", 1)], pointers)
    assert found[FAMILY].member.name == "llama"
    assert found[CacheRef("other", "llama")].member == others[0].ref
    assert found[CacheRef(None, "llama")].member == others[1].ref


@pytest.mark.parametrize("family", ["../../etc", "a..b", "A", "x" * 300])
def test_a_family_with_an_invalid_name_is_none(family: str) -> None:
    assert membership(CacheSpec("x", family=family, generation=3)).family == ""
