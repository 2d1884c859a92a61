"""A volume that names a family gets the member that the node chose, and says so in its record."""

import pytest
from gkm.hoststate import families, pointers, records, waiting_pods
from gkm.hoststate.families import FamilyChoice
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer
from gkm.hoststate.records import VolumeRecord
from gkm.mounts.relocation.tree_writer import Unrelocatable
from gkm_csi.status_errors import Code, StatusError
from support.csi.desk import InMemoryNode
from support.csi.nodes import NAMESPACE

FAMILY = CacheRef(NAMESPACE, "qwen")
COMPILE = {"cacheName": FAMILY.name, "readOnly": "false", "ifUnavailable": "compile"}
PENDING, READY, UNFIT = CacheState.PENDING, CacheState.READY, CacheState.INCOMPATIBLE


def choose(node: InMemoryNode, name: str) -> CacheRef:
    """Write down the member, as the agent does."""
    member = CacheRef(NAMESPACE, name)
    families.save(node.files.layout, FamilyChoice(FAMILY, member, "generation 1, Ready"))
    return member


def published(node: InMemoryNode, volume: str = "csi-1", **attributes: str) -> VolumeRecord:
    node.publisher.publish(node.request(volume, **(attributes or {"cacheName": FAMILY.name})))
    record = records.load(node.files.layout, volume)
    assert record is not None
    return record


def refused(node: InMemoryNode, **attributes: str) -> StatusError:
    with pytest.raises(StatusError) as caught:
        published(node, **attributes)
    assert node.is_clean()
    return caught.value


def test_a_pod_gets_the_chosen_member_and_is_counted_on_it(memory_node: InMemoryNode) -> None:
    memory_node.files.ready(FAMILY.name)
    member = choose(memory_node, "qwen-2")
    memory_node.files.ready(member.name)

    record = published(memory_node)

    assert (record.ref, record.requested, record.family) == (member, FAMILY, FAMILY.name)
    assert memory_node.files.layout.usage_file(member).exists()
    assert not memory_node.files.layout.usage_file(FAMILY).exists()


def test_a_family_needs_no_cache_of_its_name(memory_node: InMemoryNode) -> None:
    memory_node.files.ready(choose(memory_node, "qwen-2").name)
    assert published(memory_node).requested == FAMILY


def test_the_next_pod_follows_a_new_choice_and_the_published_volume_does_not(memory_node: InMemoryNode) -> None:
    first = choose(memory_node, "qwen-1")
    for name in ("qwen-1", "qwen-2"):
        memory_node.files.ready(name)
    before = published(memory_node)
    second = choose(memory_node, "qwen-2")

    assert published(memory_node) == before
    memory_node.mounts.mounted.clear()
    assert published(memory_node) == before
    assert before.ref == first
    assert published(memory_node, "csi-2").ref == second


def test_a_choice_without_a_pointer_leaves_the_cache_of_the_name(memory_node: InMemoryNode) -> None:
    own = memory_node.files.ready(FAMILY.name)
    choose(memory_node, "deleted")
    record = published(memory_node)
    assert (record.ref, record.family) == (own, "")


@pytest.mark.parametrize("content", ["{", "[]", '{"member": "../../etc", "why": ""}', '{"member": 7}', '{"why": ""}'])
def test_a_pod_waits_where_the_choice_is_damaged(memory_node: InMemoryNode, content: str) -> None:
    memory_node.files.ready(FAMILY.name)
    choose(memory_node, "qwen-2")
    memory_node.files.layout.family(FAMILY).write_text(content)
    for attributes in ({"cacheName": FAMILY.name}, COMPILE):
        refusal = refused(memory_node, **attributes)
        assert (refusal.code, "its state file is damaged" in refusal.message) == (Code.UNAVAILABLE, True)


def test_a_repeat_for_another_name_of_the_same_member_is_another_volume(memory_node: InMemoryNode) -> None:
    member = choose(memory_node, "qwen-2")
    memory_node.files.ready(member.name)
    published(memory_node)
    with pytest.raises(StatusError, match="already published for another pod, another cache") as caught:
        published(memory_node, cacheName=member.name)
    assert caught.value.code is Code.ALREADY_EXISTS


def test_a_record_without_the_field_is_that_of_the_cache_itself(memory_node: InMemoryNode) -> None:
    own = memory_node.files.ready(FAMILY.name)
    record = published(memory_node)
    path = memory_node.files.layout.volume_record("csi-1")
    path.write_text(path.read_text().replace('"family"', '"unknownToEarlierVersions"'))
    assert records.load(memory_node.files.layout, "csi-1") == record
    assert record.requested == own
    assert published(memory_node) == record


def test_a_waiting_pod_asks_for_the_chosen_member(memory_node: InMemoryNode) -> None:
    member = choose(memory_node, "qwen-2")
    memory_node.files.pointer(member, CacheState.DOWNLOADING, progress=7)
    refusal = refused(memory_node, cacheName=FAMILY.name)
    assert f"{member} is Downloading" in refusal.message
    assert waiting_pods.is_pod_waiting(memory_node.files.layout, member)


@pytest.mark.parametrize(
    ("state", "reason", "starts"),
    [
        (None, "", True),
        (UNFIT, "ArchitectureMismatch", True),
        (CacheState.FAILED, "SignatureMissing", True),
        (CacheState.DELETING, "", True),
        (PENDING, "RegistryUnavailable", True),
        (PENDING, "", False),
        (PENDING, "GPULost", False),
        (CacheState.DOWNLOADING, "", False),
        (CacheState.EXTRACTING, "", False),
    ],
)
def test_a_pod_that_may_compile_waits_only_for_what_is_on_its_way(
    memory_node: InMemoryNode, state: CacheState | None, reason: str, *, starts: bool
) -> None:
    if state is not None:
        memory_node.files.pointer(choose(memory_node, "qwen-2"), state, reason=reason)
    if not starts:
        assert refused(memory_node, **COMPILE).code is Code.UNAVAILABLE
        return
    record = published(memory_node, **COMPILE)
    assert (record.digest, record.requested, record.empty_because != "") == ("", FAMILY, True)


def test_a_pod_that_may_compile_waits_for_files_that_are_fetched_again(memory_node: InMemoryNode) -> None:
    memory_node.files.ready(choose(memory_node, "qwen-2").name)
    memory_node.mounts.fails, memory_node.mounts.error = "entry", FileNotFoundError(2, "gone")
    assert refused(memory_node, **COMPILE).code is Code.UNAVAILABLE


def test_a_pod_that_may_compile_starts_where_a_ready_cache_can_never_be_mounted(memory_node: InMemoryNode) -> None:
    memory_node.files.ready(choose(memory_node, "qwen-2").name)
    memory_node.mounts.fails, memory_node.mounts.error = "prepared", Unrelocatable("a link")
    assert refused(memory_node, cacheName=FAMILY.name, readOnly="false").code is Code.FAILED_PRECONDITION
    record = published(memory_node, **COMPILE)
    assert (record.digest, "a link" in record.empty_because) == ("", True)


def test_a_member_that_goes_while_a_pod_is_published_leaves_it_the_next_choice(
    memory_node: InMemoryNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout, load = memory_node.files.layout, pointers.load
    gone = memory_node.files.ready(choose(memory_node, "qwen-2").name)
    memory_node.files.ready("qwen-1")

    def load_late(at: Layout, ref: CacheRef) -> Pointer | None:
        if ref == gone and at.pointer(gone).exists():  # the agent writes the next choice, and then removes the pointer
            choose(memory_node, "qwen-1")
            pointers.remove(layout, gone)
        return load(at, ref)

    monkeypatch.setattr(pointers, "load", load_late)
    record = published(memory_node, **COMPILE)
    assert (record.ref.name, record.empty_because) == ("qwen-1", "")
