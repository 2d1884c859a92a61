"""What becomes of a cache on a node when its image is refused: withdrawn, or kept where it is (whenRevoked)."""

import errno
from pathlib import Path

import pytest
from gkm.api.config import Policy, Verification
from gkm.api.errors import GKMError, Reason
from gkm.gpus.values import Inventory
from gkm.hoststate import pointers
from gkm.hoststate.pointers import CacheState, Pointer
from gkm.images.signatures.verify import Verdict
from gkm_agent.caches.approvals import policy_of
from gkm_agent.caches.model import PullHold, WantedCache
from support.agent.fakes import H100, digest_of
from support.agent.node import IMAGE, REF, Node

ONE, TWO = digest_of("one"), digest_of("two")
REVOKED = PullHold("SignatureMissing", "no signature was found", final=True, digest=ONE)
REFUSED = Verdict(verified=False, allowed=False, reason=Reason.SIGNATURE_INVALID, message="another key")
AWAY = GKMError(Reason.REGISTRY_UNAVAILABLE, "the registry does not answer")
ALONG = [pytest.param(False, id="running"), pytest.param(True, id="restarted")]


@pytest.fixture
def served(node: Node) -> Node:
    """A node that serve_revoked what is refused, and has the cache Ready."""
    node.serve_revoked = True
    node.restart()
    node.want("llama", digest=ONE)
    assert node.settle()
    node.images.calls.clear()
    return node


def name_of(verification: Verification) -> str:
    return policy_of(verification)()


def revoke(node: Node, hold: PullHold = REVOKED) -> None:
    node.source.wanted = [WantedCache(REF, IMAGE, None, hold)]


def another_policy(node: Node) -> None:
    """Restart with other policies, as a change of the configuration does: the check counts no more."""
    node.policy = "another"
    node.restart()


@pytest.mark.parametrize("restarted", ALONG)
def test_a_cache_that_the_controller_revokes_stays_served_with_a_notice(served: Node, restarted: bool) -> None:  # noqa: FBT001
    revoke(served)
    if restarted:
        served.restart()
    served.settle()
    assert (served.pointer().state, served.pointer().digest) == (CacheState.READY, ONE)
    assert "no signature was found" in served.status().message
    assert served.status().state == "Ready"
    assert served.images.steps() == []


def test_a_cache_that_the_controller_revokes_is_withdrawn_by_default(node: Node) -> None:
    node.want("llama", digest=ONE)
    node.settle()
    revoke(node)
    node.settle()
    assert (node.pointer().state, node.pointer().reason) == (CacheState.FAILED, "SignatureMissing")


def test_a_node_without_the_revoked_cache_pulls_nothing(node: Node) -> None:
    node.serve_revoked = True
    node.restart()
    revoke(node)
    node.settle()
    assert node.pointer().state is CacheState.FAILED
    assert node.images.steps() == []


def test_a_revoked_cache_of_another_digest_does_not_stay_served(served: Node) -> None:
    revoke(served, PullHold("SignatureMissing", "none", final=True, digest=TWO))
    served.settle()
    assert served.pointer().state is CacheState.FAILED


def test_a_new_approval_removes_the_notice(served: Node) -> None:
    revoke(served)
    served.settle()
    served.want("llama", digest=ONE)
    assert served.settle()
    assert served.pointer().message == ""


def test_the_replacement_of_a_driver_ends_no_served_cache(served: Node) -> None:
    revoke(served)
    served.settle()
    served.read_gpus(Inventory((), ("nvmlInit: Driver Not Loaded",)))
    served.settle()
    assert served.pointer().reason == Reason.GPU_LOST
    served.read_gpus(Inventory((H100,)))
    served.settle()
    assert served.pointer().state is CacheState.READY


def test_a_withdrawn_cache_does_not_return(node: Node) -> None:
    node.want("llama", digest=ONE)
    node.settle()
    revoke(node)
    node.settle()
    node.serve_revoked = True
    node.restart()
    node.settle()
    assert node.pointer().state is CacheState.FAILED


def watched(node: Node, step: str) -> list[CacheState]:
    """Return where the states of the cache are noted before a step of its image."""
    seen: list[CacheState] = []
    node.images.before[step] = lambda: seen.append(node.pointer().state)
    return seen


def test_a_cache_that_the_agent_refuses_stays_ready_throughout(served: Node) -> None:
    served.images.verdicts[ONE] = REFUSED
    seen = watched(served, "verify")
    another_policy(served)
    for _ in range(3):
        served.settle()
        served.now += 3600
    assert seen == [CacheState.READY] * 3
    assert (served.pointer().state, served.pointer().digest) == (CacheState.READY, ONE)
    assert "another key" in served.status().message
    assert set(served.images.steps()) == {"verify"}


def test_a_cache_that_the_agent_refuses_is_withdrawn_by_default(node: Node) -> None:
    node.want("llama", digest=ONE)
    node.settle()
    node.images.verdicts[ONE] = REFUSED
    another_policy(node)
    node.settle()
    assert (node.pointer().state, node.pointer().reason) == (CacheState.FAILED, Reason.SIGNATURE_INVALID)


@pytest.mark.parametrize("step", ["verify", "describe"])
def test_a_served_cache_stays_while_the_registry_is_unavailable(served: Node, step: str) -> None:
    served.images.failures[step] = AWAY
    another_policy(served)
    served.settle()
    assert served.pointer().state is CacheState.READY
    assert "RegistryUnavailable" in served.pointer().message
    del served.images.failures[step]
    served.now += 3600
    assert served.settle()
    assert (served.pointer().state, served.pointer().message) == (CacheState.READY, "")


def test_another_policy_that_lets_it_through_leaves_it_ready(served: Node) -> None:
    another_policy(served)
    assert served.settle()
    assert served.pointer().state is CacheState.READY
    served.images.calls.clear()
    served.restart()
    assert served.settle()
    assert served.images.steps() == []


def test_a_node_without_the_refused_cache_fetches_nothing(node: Node) -> None:
    node.serve_revoked = True
    node.restart()
    node.images.verdicts[ONE] = REFUSED
    node.want("llama", digest=ONE)
    node.settle()
    assert node.pointer().state is CacheState.FAILED
    assert node.entries() == set()


def test_a_disk_that_cannot_take_the_notice_takes_nothing_from_pods(
    served: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.images.verdicts[ONE] = REFUSED
    another_policy(served)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pointers, "save", full)
    served.settle()
    assert served.pointer().state is CacheState.READY
    assert served.status().state == "Ready"
    assert "another key" in served.status().message


def test_what_follows_from_a_refusal_is_no_demand_on_signatures(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.write_text("one")
    policies = [Policy(keys=[str(key)])]
    name = name_of(Verification(policies=policies))
    assert name_of(Verification(policies=policies, when_revoked="keep", recheck_interval=60)) == name
    assert name_of(Verification(mode="warn", policies=policies)) != name
    key.write_text("two")
    assert name_of(Verification(policies=policies)) != name


def test_a_pointer_that_stays_served_reads_as_any_ready_pointer(served: Node) -> None:
    before = served.pointer()
    revoke(served)
    served.settle()
    after = served.pointer()
    assert same_but_for_words(before, after)
    assert after.message.startswith("kept by verification.whenRevoked")


def same_but_for_words(one: Pointer, other: Pointer) -> bool:
    return (one.state, one.digest, one.size_bytes, one.progress, one.driver_version) == (
        other.state,
        other.digest,
        other.size_bytes,
        other.progress,
        other.driver_version,
    )
