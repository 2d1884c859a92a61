"""The loop chooses a member for each family, writes it down, and reports it in status and labels of the node."""

from dataclasses import replace

import pytest
from gkm.api.errors import Reason
from gkm.gpus.values import Inventory
from gkm.hoststate import families
from gkm.hoststate.families import FamilyChoice
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer
from gkm_agent.caches.decisions import Observed
from gkm_agent.caches.model import Membership, PullHold, WantedCache
from gkm_agent.report.status import ready_digests
from support.agent.fakes import A100, H100, digest_of
from support.agent.node import IMAGE, REF, Node

OTHER = CacheRef("ml-apps", "other")


def member(name: str, generation: int = 0, *, pinned: bool = False) -> WantedCache:
    place = Membership(REF.name if generation else "", generation, pinned)
    return WantedCache(CacheRef("ml-apps", name), IMAGE, digest_of(name), membership=place)


def settled(node: Node, *members: WantedCache) -> str | None:
    """Let the agent work for these caches; return the chosen member."""
    node.source.wanted = list(members)
    node.settle()
    choice = families.load(node.layout, REF)
    return choice.member.name if choice else None


def chosen_in_status(node: Node) -> set[str]:
    return {name for name, cache in node.sink.held["ml-apps"].caches.items() if cache.chosen}


def test_the_choice_follows_the_objects_and_ends_with_the_family(node: Node) -> None:
    own, first, second = member("llama"), member("a", 1), member("b", 2)
    assert settled(node, own) is None
    assert settled(node, own, first) == "a"
    assert settled(node, own, first, second) == "b"
    assert chosen_in_status(node) == {"b"}
    assert settled(node, own, member("a", 1, pinned=True), second) == "a"
    assert chosen_in_status(node) == {"a"}
    assert settled(node, own, second) == "b"
    assert settled(node, own) is None
    assert chosen_in_status(node) == set()
    assert not node.layout.family(REF).exists()


def test_without_a_signer_pods_get_the_newest_generation_of_the_others(node: Node) -> None:
    first, second, third = (member(name, number) for number, name in enumerate("abc", 1))
    assert settled(node, first, second, third) == "c"
    refused = [
        replace(each, digest=None, hold=PullHold(Reason.SIGNATURE_INVALID, "x", final=True)) for each in (second, third)
    ]
    assert settled(node, first, *refused) == "a"
    assert chosen_in_status(node) == {"a"}
    assert settled(node, first, second, third) == "c"


def test_a_restarted_agent_keeps_the_choice_until_it_knows_all_caches(node: Node) -> None:
    assert settled(node, member("a", 1), member("b", 2)) == "b"
    node.source.complete = False
    node.restart()
    assert settled(node) == "b"
    node.source.complete = True
    assert settled(node) is None


def test_a_driver_that_no_member_fits_moves_the_choice_to_the_cache_that_the_pod_names(node: Node) -> None:
    members = (member("llama"), member("a", 1))
    assert settled(node, *members) == "a"
    node.read_gpus(Inventory((A100,)))
    assert settled(node, *members) == "llama"


def started_without(node: Node) -> dict[str, int]:
    return {name: cache.pods_without_cache for name, cache in node.sink.held["ml-apps"].caches.items()}


@pytest.mark.parametrize(
    ("members", "told"),
    [
        pytest.param([member("a", 1)], {"a": 2}, id="a family of one capture"),
        pytest.param([member("a", 1), member("b", 2)], {"a": 0, "b": 2}, id="the member that pods would get"),
        pytest.param([member("llama"), member("a", 1)], {"llama": 2, "a": 0}, id="the cache that the pod names"),
        pytest.param([member("llama")], {"llama": 2}, id="no family"),
    ],
)
def test_pods_that_started_without_a_family_are_told_on_one_member(
    node: Node, members: list[WantedCache], told: dict[str, int]
) -> None:
    node.read_gpus(Inventory((A100,)))
    for volume in ("csi-1", "csi-2"):
        node.mount("", volume)
    settled(node, *members)
    assert started_without(node) == told


def test_a_member_that_fits_ends_the_report(node: Node) -> None:
    node.read_gpus(Inventory((A100,)))
    node.mount("", "csi-1")
    assert settled(node, member("a", 1)) == "a"
    assert started_without(node) == {"a": 1}
    node.read_gpus(Inventory((H100,)))
    settled(node, member("a", 1))
    assert started_without(node) == {"a": 0}


def test_a_choice_that_a_full_disk_refuses_is_written_by_the_next_pass(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(families, "save", refuse)
        assert settled(node, member("a", 1)) is None
        assert node.pointer(CacheRef("ml-apps", "a")).state is CacheState.READY
    assert settled(node, member("a", 1)) == "a"


@pytest.mark.parametrize(
    ("state", "member_name", "expected"),
    [
        (CacheState.READY, "b", {"llama": "b", "a": "a", "b": "b"}),
        (CacheState.FAILED, "b", {"llama": "llama", "a": "a"}),
        (CacheState.READY, "gone", {"llama": "llama", "a": "a", "b": "b"}),
    ],
)
def test_the_label_of_a_family_is_that_of_the_chosen_member(
    state: CacheState, member_name: str, expected: dict[str, str]
) -> None:
    states = {"llama": CacheState.READY, "a": CacheState.READY, "b": state}
    observed = {
        CacheRef("ml-apps", name): Observed(Pointer(CacheRef("ml-apps", name), IMAGE, each, name))
        for name, each in states.items()
    }
    choice = FamilyChoice(REF, CacheRef("ml-apps", member_name))
    assert ready_digests(observed, [choice]) == {CacheRef("ml-apps", name): one for name, one in expected.items()}


def test_a_family_without_a_cache_of_its_name_has_a_label_too() -> None:
    pointer = Pointer(OTHER, IMAGE, CacheState.READY, "digest")
    assert ready_digests({OTHER: Observed(pointer)}, [FamilyChoice(REF, OTHER)]) == {OTHER: "digest", REF: "digest"}
