"""From what is wanted to what lies on the disk and what the node says, over fakes of the agent's own Protocols."""

from dataclasses import replace

import pytest
from gkm.api.errors import Reason
from gkm.gpus.values import Inventory
from gkm.hoststate import pointers
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState
from gkm.images.signatures.verify import Verdict
from gkm_agent.caches.model import PullHold, WantedCache
from gkm_agent.pulls.scheduler import MAX_PULLS
from gkm_agent.store.pointers import PointerStore
from msgspec import structs
from support.agent.fakes import A100, H100, digest_of
from support.agent.node import IMAGE, REF, Node

ONE, TWO = digest_of("one"), digest_of("two")
REFUSED = Verdict(
    verified=False,
    allowed=False,
    reason=Reason.SIGNATURE_MISSING,
    message="needs a signature by key abc…; no signature was found",
)


def test_a_wanted_cache_becomes_ready(node: Node) -> None:
    node.want("llama")

    assert node.settle()

    pointer = node.pointer()
    assert (pointer.state, pointer.digest, pointer.image) == (CacheState.READY, ONE, IMAGE)
    assert (pointer.progress, pointer.driver_version, pointer.message) == (100, "570.86.15", "")
    assert pointer.size_bytes > 0
    assert node.entries() == {ONE}
    assert not list(node.layout.work.iterdir())


def test_verification_and_preflight_come_before_content(node: Node) -> None:
    node.want("llama")

    node.settle()

    assert node.images.steps() == ["resolve", "verify", "describe", "fetch", "publish"]


def test_the_node_says_which_gpus_fit_and_which_do_not(node: Node) -> None:
    node.read_gpus(Inventory((H100, structs.replace(A100, index=1))))
    node.want("llama")

    node.settle()

    status = node.status()
    assert (status.state, status.digest, status.size_bytes) == ("Ready", ONE, node.pointer().size_bytes)
    assert status.compatible_gpus[0].ids == [0]
    assert [(miss.ids, miss.reason, miss.message) for miss in status.incompatible_gpus] == [
        ([1], "ArchitectureMismatch", "built for sm_90, this GPU is sm_80")
    ]
    assert [group.gpu_type for group in node.sink.held["ml-apps"].gpus] == [
        "nvidia-h100-80gb-hbm3",
        "nvidia-a100-sxm4-80gb",
    ]


def test_for_a_gpu_that_does_not_fit_nothing_is_fetched(node: Node) -> None:
    node.read_gpus(Inventory((A100,)))
    node.want("llama")

    assert not node.settle()

    pointer = node.pointer()
    assert (pointer.state, pointer.reason) == (CacheState.INCOMPATIBLE, Reason.ARCHITECTURE_MISMATCH)
    assert pointer.message == "no GPU of this node fits: GPU 0: built for sm_90, this GPU is sm_80"
    assert "fetch" not in node.images.steps()
    assert node.entries() == set()
    assert node.status().incompatible_gpus[0].ids == [0]


def test_on_a_node_without_gpus_the_reason_is_just_that(node: Node) -> None:
    node.gpus.now = Inventory()
    node.restart()
    node.want("llama")

    node.settle()

    assert (node.pointer().state, node.pointer().reason) == (CacheState.INCOMPATIBLE, Reason.NO_GPU)
    assert node.pointer().message == "this node has no GPU; the cache is built for sm_90"


def test_an_image_that_verification_only_warns_of_is_used_and_the_warning_shown(node: Node) -> None:
    node.images.verdicts[ONE] = replace(REFUSED, allowed=True)
    node.want("llama")

    assert node.settle()
    assert node.status().message == REFUSED.message


def test_until_the_controller_has_verified_it_a_cache_waits(node: Node) -> None:
    node.source.wanted = [WantedCache(REF, IMAGE, None, PullHold("RegistryUnavailable", "waiting for the controller"))]

    assert not node.settle()

    assert (node.pointer().state, node.pointer().message) == (CacheState.PENDING, "waiting for the controller")
    assert node.images.steps() == []


def test_a_ready_cache_stays_ready_while_the_controller_cannot_say(node: Node) -> None:
    node.want("llama", digest=ONE)
    node.settle()
    node.source.wanted = [WantedCache(REF, IMAGE, None, PullHold("RegistryUnavailable", "waiting"))]

    assert node.settle()
    assert node.entries() == {ONE}


def test_a_tag_is_resolved_once(node: Node) -> None:
    node.want("llama")
    node.settle()
    node.images.tags[IMAGE] = TWO
    node.restart()

    assert node.settle()
    assert node.pointer().digest == ONE
    assert node.images.steps().count("resolve") == 1


def test_a_changed_image_takes_the_place_of_the_old_one(node: Node) -> None:
    node.want("llama")
    node.settle()
    node.images.tags["registry.example/team/cache:2"] = TWO
    node.want("llama", image="registry.example/team/cache:2")

    node.settle()
    node.agent.reconcile()

    assert node.pointer().digest == TWO
    assert node.entries() == {TWO}


def test_a_few_caches_are_pulled_at_a_time_and_all_in_the_end(node: Node) -> None:
    digests = [digest_of(str(number)) for number in range(8)]
    node.source.wanted = [
        WantedCache(CacheRef("ml-apps", f"cache-{number}"), IMAGE, digest) for number, digest in enumerate(digests)
    ]

    assert node.settle()

    assert node.entries() == set(digests)
    assert node.images.most_at_once < MAX_PULLS


def test_progress_is_written_in_steps_on_the_way(node: Node) -> None:
    seen: list[tuple[str, int]] = []
    save = PointerStore.save

    def spy(store: PointerStore, pointer: pointers.Pointer, ticket: object = None) -> None:
        seen.append((pointer.state.value, pointer.progress))
        save(store, pointer, ticket)  # type: ignore[arg-type]

    node.want("llama")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PointerStore, "save", spy)
        node.settle()

    assert seen == [
        ("Pending", 0), ("Downloading", 0), ("Downloading", 50), ("Downloading", 100), ("Extracting", 0), ("Ready", 100)
    ]  # fmt: skip


def test_a_node_serves_the_earlier_image_until_the_rollout_reaches_it(node: Node) -> None:
    node.want("llama", digest=ONE)
    assert node.settle()
    hold = PullHold("", "waiting: the rollout has not reached this node")
    node.source.wanted = [WantedCache(REF, IMAGE, None, hold)]
    steps = len(node.images.steps())
    assert node.settle()
    assert (node.pointer().state, node.pointer().digest) == (CacheState.READY, ONE)
    assert len(node.images.steps()) == steps
    node.want("llama", digest=TWO)
    assert node.settle()
    assert node.pointer().digest == TWO


@pytest.mark.parametrize(
    "away", [Inventory(errors=("nvmlInit: Driver Not Loaded",)), Inventory((A100,))], ids=["unreadable", "another"]
)
@pytest.mark.parametrize("reason", ["", "RegistryUnavailable"])
def test_a_hold_takes_no_approved_image_from_a_node_whose_gpus_come_back(
    node: Node, away: Inventory, reason: str
) -> None:
    node.want("llama", digest=ONE)
    assert node.settle()
    node.source.wanted = [WantedCache(REF, IMAGE, None, PullHold(reason, "waiting for the controllers"))]
    node.read_gpus(away)
    for _ in range(2):
        assert not node.settle()
    assert node.entries() == {ONE}, "the hold forgot the approved digest, so its entry was collected"
    node.read_gpus(Inventory((H100,)))
    steps = len(node.images.steps())
    assert node.settle(), "the hold keeps an approved image from a node that has it"
    assert node.pointer().digest == ONE
    assert len(node.images.steps()) == steps


def test_a_node_without_an_earlier_image_waits_for_the_rollout(node: Node) -> None:
    node.source.wanted = [WantedCache(REF, IMAGE, None, PullHold("", "waiting: the rollout has not reached this node"))]
    assert not node.settle()
    assert (node.status().state, node.status().message) == ("Pending", "waiting: the rollout has not reached this node")
    assert node.images.steps() == []
