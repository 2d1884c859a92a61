"""What goes wrong, what is said of it, and when it is tried again."""

import errno
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
from gkm.api.config import Config, Registries
from gkm.api.errors import GKMError, Reason
from gkm.gpus.values import Fault, Inventory
from gkm.hoststate import pointers
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer
from gkm.images.pulling import entry
from gkm.images.signatures.verify import Verdict
from gkm_agent.caches import approvals
from gkm_agent.caches.model import PullHold, WantedCache
from gkm_agent.pulls.images import NodeImages
from gkm_agent.store.pointers import PointerStore, PullToken
from msgspec import structs
from support.agent.fakes import H100, digest_of
from support.agent.node import IMAGE, REF, Node
from support.host.descriptors_used_up import descriptors_used_up
from support.host.waiting import until

ONE, TWO = digest_of("one"), digest_of("two")
REFUSED = Verdict(
    verified=False,
    allowed=False,
    reason=Reason.SIGNATURE_MISSING,
    message="needs a signature by key abc…; no signature was found",
)


def test_an_unsigned_image_is_refused_by_the_agent_itself(node: Node) -> None:
    node.images.verdicts[ONE] = REFUSED
    node.want("llama", digest=ONE)  # the controller has let it through

    assert not node.settle()

    pointer = node.pointer()
    assert (pointer.state, pointer.reason) == (CacheState.FAILED, Reason.SIGNATURE_MISSING)
    assert pointer.message == REFUSED.message
    assert node.images.steps() == ["verify"]


def test_an_image_without_a_policy_causes_no_request(node: Node) -> None:
    node.images.failures["check"] = GKMError(Reason.SIGNATURE_MISSING, "no verification policy covers it")
    node.want("llama")

    assert not node.settle()

    pointer = node.pointer()
    assert (pointer.state, pointer.reason) == (CacheState.FAILED, Reason.SIGNATURE_MISSING)
    assert node.images.steps() == []


def test_what_the_agent_checks_first_is_the_configuration(tmp_path: Path) -> None:
    config = Config(registries=Registries(allow=["registry.example"]))
    images = NodeImages.of(config, Layout(tmp_path))
    for image, reason in (
        ("registry.example/team/x:1", Reason.SIGNATURE_MISSING),
        ("elsewhere.example/team/x:1", Reason.NOT_ALLOWED),
        ("UPPER/x:1", Reason.INVALID_REFERENCE),
    ):
        with pytest.raises(GKMError) as caught:
            images.check_allowed(image, "team")
        assert caught.value.reason is reason


def test_what_the_controller_refused_fails_with_its_reason(node: Node) -> None:
    node.want("llama")
    node.settle()
    node.source.wanted = [WantedCache(REF, IMAGE, None, PullHold("IdentityMismatch", "another key", final=True))]

    node.settle()

    assert (node.pointer().state, node.pointer().reason) == (CacheState.FAILED, "IdentityMismatch")
    assert node.entries() == set()


def test_a_tag_that_led_to_something_refused_is_resolved_again(node: Node) -> None:
    node.images.verdicts[ONE] = REFUSED
    node.want("llama")
    node.settle()
    node.images.tags[IMAGE] = TWO
    node.now += 3600

    assert node.settle()
    assert node.pointer().digest == TWO


def test_an_unavailable_registry_is_retried_with_growing_pauses(node: Node) -> None:
    node.images.failures["verify"] = GKMError(Reason.REGISTRY_UNAVAILABLE, "the registry answers 503")
    node.want("llama")
    node.settle()
    first = node.status()
    assert (first.state, first.reason, first.message) == ("Failed", "RegistryUnavailable", "the registry answers 503")
    assert first.next_try is not None

    node.settle()
    assert node.images.steps().count("verify") == 1
    node.now += 10
    node.settle()
    node.now += 5
    node.settle()
    assert node.images.steps().count("verify") == 2
    del node.images.failures["verify"]
    node.now += 600
    assert node.settle()
    assert node.status().next_try is None


@pytest.mark.parametrize("undecided", [True, False])
def test_a_registry_that_requests_a_pause_gets_it(node: Node, undecided: bool) -> None:  # noqa: FBT001 -- a column
    busy = GKMError(Reason.REGISTRY_UNAVAILABLE, "the registry answers 429", retry_after=60.0)
    if undecided:
        node.images.verdicts[ONE] = Verdict(None, allowed=False, reason=busy.reason, message="", retry_after=60.0)
    else:
        node.images.failures["describe"] = busy
    node.want("llama")
    node.settle()
    for seconds, tries in ((59, 1), (32, 2)):
        node.now += seconds
        node.settle()
        assert node.images.steps().count("verify") == tries


def test_a_changed_policy_is_tried_at_once(node: Node) -> None:
    node.images.verdicts[ONE] = REFUSED
    node.want("llama", digest=ONE)
    assert not node.settle()
    del node.images.verdicts[ONE]
    node.policy = "with the key of the signer"

    assert node.settle()
    assert node.pointer().state is CacheState.READY


def test_a_refusal_of_the_policy_before_a_change_causes_no_pause(node: Node) -> None:
    changed = Event()

    def wait() -> None:
        assert changed.wait(60)

    node.images.verdicts[ONE] = REFUSED
    node.images.before["verify"] = wait
    node.want("llama", digest=ONE)
    node.agent.reconcile()
    node.policy = "with the key of the signer"
    node.agent.reconcile()
    changed.set()
    until(lambda: all(running.done for running in node.agent._pool._running.values()), "the pull to end")
    del node.images.verdicts[ONE]

    assert node.settle()
    assert node.pointer().state is CacheState.READY


def test_a_policy_that_changes_each_minute_causes_one_try_for_each_change(node: Node) -> None:
    node.images.failures["verify"] = GKMError(Reason.REGISTRY_UNAVAILABLE, "away")
    node.want("llama", digest=ONE)
    for change in range(10):
        node.policy = f"policy {change}"
        for _ in range(6):
            node.settle()
            node.now += 10
    before = node.images.steps().count("verify")
    node.policy = "the last one"
    for _ in range(6):
        node.settle()
        node.now += 10
    assert node.images.steps().count("verify") == before + 1


def test_a_changed_object_is_tried_at_once(node: Node) -> None:
    node.images.failures["verify"] = GKMError(Reason.REGISTRY_UNAVAILABLE, "away")
    node.want("llama")
    node.settle()
    node.images.failures.clear()
    node.want("llama", digest=TWO)

    assert node.settle()


@pytest.mark.parametrize(
    ("step", "error", "reason"),
    [
        ("resolve", GKMError(Reason.NOT_FOUND, "no such tag"), Reason.NOT_FOUND),
        ("describe", GKMError(Reason.METADATA_MISSING, "no cache image"), Reason.METADATA_MISSING),
        ("describe", GKMError(Reason.UNAUTHORIZED, "403"), Reason.UNAUTHORIZED),
        ("fetch", GKMError(Reason.DIGEST_MISMATCH, "changed"), Reason.DIGEST_MISMATCH),
        ("fetch", GKMError(Reason.UNSAFE_CONTENT, "../x"), Reason.UNSAFE_CONTENT),
        ("fetch", OSError(errno.ENOSPC, "No space left on device"), Reason.DISK_FULL),
        ("fetch", OSError(errno.EIO, "Input/output error"), Reason.NODE_ERROR),
        ("publish", RuntimeError("a defect"), Reason.NODE_ERROR),
    ],
)
def test_every_failure_is_reported_and_leaves_no_files(node: Node, step: str, error: Exception, reason: Reason) -> None:
    node.images.failures[step] = error
    node.want("llama")

    assert not node.settle()

    assert (node.pointer().state, node.pointer().reason) == (CacheState.FAILED, reason)
    assert node.pointer().message
    assert node.entries() == set()
    assert not list(node.layout.work.iterdir())
    node.images.failures.clear()
    node.now += 3600
    assert node.settle()


def test_a_cache_that_fails_stops_no_other(node: Node) -> None:
    node.images.verdicts[TWO] = REFUSED
    node.source.wanted = [
        WantedCache(CacheRef("ml-apps", "bad"), IMAGE, TWO),
        WantedCache(CacheRef("ml-apps", "good"), IMAGE, ONE),
    ]

    assert not node.settle()
    assert [node.status(CacheRef("ml-apps", name)).state for name in ("bad", "good")] == ["Failed", "Ready"]


def test_a_restart_sends_the_registry_no_request(node: Node) -> None:
    node.want("llama")
    node.settle()
    node.images.calls.clear()
    node.restart()

    assert node.settle()
    assert node.images.steps() == []


def test_a_changed_policy_is_asked_about_after_a_restart(node: Node) -> None:
    node.want("llama")
    node.settle()
    node.policy = "another"
    node.images.verdicts[ONE] = REFUSED
    node.restart()

    assert not node.settle()
    assert (node.pointer().state, node.pointer().digest) == (CacheState.FAILED, ONE)


def test_a_new_driver_is_judged_anew_without_a_registry(node: Node) -> None:
    node.want("llama")
    node.settle()
    node.images.calls.clear()
    node.read_gpus(Inventory((structs.replace(H100, driver_version="580.1"),)))

    assert node.settle()
    assert node.pointer().driver_version == "580.1"
    assert node.images.steps() == []


def test_a_gpu_that_is_lost_makes_its_caches_unusable_and_its_return_ready_again(node: Node) -> None:
    node.want("llama")
    node.settle()
    lost = structs.replace(H100, faults=(Fault("nvmlDeviceGetName", "GPU_IS_LOST", "GPU is lost"),))
    node.read_gpus(Inventory((lost,)))

    node.settle()
    assert (node.pointer().state, node.pointer().reason) == (CacheState.INCOMPATIBLE, Reason.GPU_LOST)
    assert node.status().incompatible_gpus[0].reason == "GPULost"
    assert node.entries() == {ONE}
    node.read_gpus(Inventory((H100,)))
    assert node.settle()
    assert node.images.steps().count("fetch") == 1


def test_while_the_gpus_cannot_be_read_a_cache_waits_and_stays(node: Node) -> None:
    node.want("llama")
    node.settle()
    node.read_gpus(Inventory(errors=("nvmlInit: Driver Not Loaded",)))

    assert not node.settle()
    assert (node.pointer().state, node.pointer().reason) == (CacheState.PENDING, Reason.GPU_LOST)
    assert "Driver Not Loaded" in node.pointer().message
    assert node.entries() == {ONE}
    node.read_gpus(Inventory((H100,)))
    assert node.settle()


def test_an_invalid_pointer_is_written_anew(node: Node) -> None:
    node.want("llama")
    node.settle()
    node.layout.pointer(REF).write_text("{")

    assert node.settle()


def test_a_failure_that_cannot_be_noted_for_any_reason_is_a_failure(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = PointerStore.save

    def save(store: PointerStore, pointer: Pointer, ticket: PullToken | None = None) -> Pointer:
        if pointer.state is CacheState.FAILED:
            raise ValueError("a name that is no text")
        return real(store, pointer, ticket)

    monkeypatch.setattr(PointerStore, "save", save)
    node.want("llama", digest=digest_of("one"))
    node.images.failures["fetch"] = OSError(errno.EIO, "Input/output error", "kernel\udcff")

    assert not node.settle()
    assert not node.settle()
    assert node.images.steps().count("fetch") == 1
    said = node.status()
    assert (said.state, said.reason) == (CacheState.FAILED, Reason.NODE_ERROR)
    assert said.message.encode()
    assert said.next_try


def test_a_disk_that_stays_full_is_reported_and_logged_once_for_each_pause(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_layout: Layout, _pointer: Pointer) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pointers, "save", full)
    node.source.wanted = [WantedCache(REF, IMAGE, None, PullHold("", "waiting for the controllers"))]
    said = []
    for _ in range(3):
        assert not node.settle()
        said.append(node.status())
        node.now += 0.5

    def logged() -> int:
        return sum(line.getMessage().startswith("cache reconcile failed") for line in caplog.records)

    assert said[0].reason == Reason.DISK_FULL
    assert said == said[:1] * 3, "each pass moves the time of the next attempt, so each pass writes to the API"
    assert logged() == 1, "each pass adds a traceback to the full disk"
    node.now += 600
    assert not node.settle()
    assert logged() == 2


def test_a_ready_cache_of_empty_files_is_not_looked_through_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.want("llama", digest=digest_of("one"))
    assert node.settle()
    pointers.save(node.layout, replace(node.pointer(), size_bytes=0))
    looked: list[str] = []
    monkeypatch.setattr(entry, "find", lambda _layout, digest: looked.append(digest))

    assert node.settle()
    assert looked == []


def test_a_check_that_cannot_be_read_now_takes_no_cache_from_pods(node: Node) -> None:
    node.want("llama", digest=ONE)
    assert node.settle()
    node.restart()
    node.images.calls.clear()
    node.images.failures["verify"] = GKMError(Reason.REGISTRY_UNAVAILABLE, "the registry does not answer")

    with (
        descriptors_used_up(node.layout.pointer(REF).with_name(approvals.FILE)),
        pytest.raises(OSError, match="Too many open files"),
    ):
        node.settle()

    assert node.pointer().state is CacheState.READY, "an image that was approved is verified again"
    assert node.settle()
    assert node.images.steps() == []


def test_a_pointer_that_cannot_be_read_now_is_not_removed(node: Node) -> None:
    """While its driver is replaced, a machine looks like one without GPUs: only the pointer says that it has caches."""
    node.want("llama", digest=ONE)
    node.source.wanted = [replace(wanted, selected=False) for wanted in node.source.wanted]
    assert node.settle()
    node.read_gpus(Inventory(()))

    with descriptors_used_up(node.layout.pointer(REF)), pytest.raises(OSError, match="Too many open files"):
        node.settle()

    assert node.layout.pointer(REF).exists(), "pods lose a cache that this node has"
