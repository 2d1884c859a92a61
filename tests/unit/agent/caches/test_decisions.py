"""The next step for a cache, from values alone."""

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from gkm.api.config import Policy, Verification
from gkm.api.errors import Reason
from gkm.api.policies import PredicateRule, RequiredAttestation
from gkm.api.targets import GpuTarget
from gkm.gpus import preflight
from gkm.gpus.values import Gpu, Inventory
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState
from gkm.images.registries.transport import MAX_RETRY_AFTER_SECONDS
from gkm.images.signatures.trust_material import fingerprint
from gkm_agent.caches import approvals as checks
from gkm_agent.caches import decisions
from gkm_agent.caches.approvals import Approval, policy_of
from gkm_agent.caches.decisions import Observed, RetryAt, StartPull, WritePointer, decide
from gkm_agent.caches.model import Attempt, PullHold, WantedCache
from msgspec import structs
from support.agent.fakes import A100, H100, digest_of

ONE, TWO = digest_of("one"), digest_of("two")
WANTED = WantedCache(CacheRef("ml-apps", "llama"), "registry.example/team/cache:1")
CHECK = Approval(WANTED.image, ONE, "policy", (GpuTarget("cuda", "90", 32),))
READY = decisions.verdict_pointer(WANTED, CHECK, preflight.check(CHECK.targets, (H100,)), Inventory((H100,)), 71)
NOW = 1_750_000_000.0


def name_of(verification: Verification) -> str:
    return policy_of(verification)()


def step(wanted: WantedCache, known: Observed, *gpus: Gpu, errors: tuple[str, ...] = ()) -> decisions.Action | None:
    return decide(wanted, known, Inventory(tuple(gpus), errors), "policy", NOW)


def test_an_unknown_cache_starts_a_pull() -> None:
    assert step(WANTED, Observed(), H100) == StartPull("")
    assert step(replace(WANTED, digest=TWO), Observed(), H100) == StartPull(TWO)


def test_a_ready_cache_needs_no_action() -> None:
    known = Observed(replace(READY, updated="2026-01-01T00:00:00Z"), CHECK, 71)

    assert step(WANTED, known, H100) is None


@pytest.mark.parametrize(
    "state", [CacheState.PENDING, CacheState.DOWNLOADING, CacheState.EXTRACTING, CacheState.FAILED]
)
def test_a_complete_entry_makes_a_cache_ready_whatever_its_pointer(state: CacheState) -> None:
    assert step(WANTED, Observed(replace(READY, state=state, progress=3), CHECK, 71), H100) == WritePointer(READY)


def test_without_its_entry_a_cache_is_pulled_again() -> None:
    assert step(WANTED, Observed(READY, CHECK, None), H100) == StartPull(ONE)


def test_a_ready_pointer_without_a_check_starts_a_pull() -> None:
    assert step(WANTED, Observed(READY, None, 71), H100) == StartPull(ONE)


def test_a_check_counts_for_its_own_image_digest_and_policy_only() -> None:
    assert decisions.is_current(CHECK, WANTED, ONE, "policy")
    assert not decisions.is_current(None, WANTED, ONE, "policy")
    assert not decisions.is_current(CHECK, WANTED, ONE, "another")
    assert not decisions.is_current(CHECK, WANTED, TWO, "policy")
    assert not decisions.is_current(CHECK, replace(WANTED, image="other:1"), ONE, "policy")


def test_the_digest_of_the_controller_wins_over_what_is_here() -> None:
    assert step(replace(WANTED, digest=TWO), Observed(READY, CHECK, None), H100) == StartPull(TWO)


def test_another_image_is_resolved_anew() -> None:
    assert step(replace(WANTED, image="registry.example/team/cache:2"), Observed(READY, CHECK, 71), H100) == StartPull(
        ""
    )


def test_gpus_that_do_not_fit_make_it_incompatible_without_a_pull() -> None:
    said = step(WANTED, Observed(READY, CHECK, 71), A100)

    assert isinstance(said, WritePointer)
    assert (said.pointer.state, said.pointer.digest) == (CacheState.INCOMPATIBLE, ONE)
    assert said.pointer.size_bytes == 71


def test_gpus_that_cannot_be_read_make_it_wait() -> None:
    said = step(WANTED, Observed(READY, CHECK, 71), errors=("nvmlInit: Driver Not Loaded",))

    assert isinstance(said, WritePointer)
    assert (said.pointer.state, said.pointer.reason) == (CacheState.PENDING, Reason.GPU_LOST)
    assert said.pointer.digest == ONE


def test_a_hold_makes_it_pending_and_a_final_one_failed() -> None:
    for final, state in ((False, CacheState.PENDING), (True, CacheState.FAILED)):
        said = step(replace(WANTED, hold=PullHold("R", "why", final)), Observed(), H100)
        assert isinstance(said, WritePointer)
        assert (said.pointer.state, said.pointer.reason, said.pointer.message) == (state, "R", "why")


@pytest.mark.parametrize(
    "known",
    [
        Observed(decisions.make_pointer(WANTED, ONE, CacheState.PENDING, Reason.GPU_LOST), None, 71),
        Observed(replace(READY, state=CacheState.FAILED, digest=""), CHECK, 71),
        Observed(replace(READY, state=CacheState.INCOMPATIBLE), CHECK, None),
        Observed(replace(READY, state=CacheState.INCOMPATIBLE), structs.replace(CHECK, policy="older"), 71),
        Observed(replace(READY, state=CacheState.INCOMPATIBLE), structs.replace(CHECK, image="another"), 71),
    ],
    ids=["never approved", "refused since", "evicted", "by an older policy", "of another image"],
)
def test_a_hold_lets_no_node_serve_what_it_does_not_have_approved(known: Observed) -> None:
    said = step(replace(WANTED, hold=PullHold("R", "why")), known, H100)
    assert isinstance(said, WritePointer)
    assert (said.pointer.state, said.pointer.reason, said.pointer.digest) == (CacheState.PENDING, "R", "")


def test_a_failed_try_is_repeated_when_its_time_has_come() -> None:
    attempt = Attempt(WANTED, 1, NOW + 5)

    assert step(WANTED, Observed(attempt=attempt), H100) == RetryAt(NOW + 5)
    assert step(WANTED, Observed(attempt=replace(attempt, next_try=NOW)), H100) == StartPull("")
    assert step(replace(WANTED, digest=ONE), Observed(attempt=attempt), H100) == StartPull(ONE)


def test_a_clock_that_was_set_back_holds_nothing_up() -> None:
    assert step(WANTED, Observed(attempt=Attempt(WANTED, 1, NOW + 1e6)), H100) == StartPull("")


def test_pauses_grow_to_a_bound_and_start_again_for_another_object() -> None:
    attempt, pauses = None, []
    for _ in range(12):
        attempt = decisions.next_attempt(WANTED, attempt, transient=True, now=0.0, jitter=0.5)
        pauses.append(attempt.next_try)
    assert pauses[:4] == [5.0, 10.0, 20.0, 40.0]
    assert pauses[-1] == decisions.TRANSIENT_BACKOFF.cap
    other = decisions.next_attempt(replace(WANTED, digest=ONE), attempt, transient=False, now=0.0, jitter=0.5)
    assert (other.count, other.next_try) == (1, decisions.PERMANENT_BACKOFF.first)


def test_jitter_spreads_by_half_each_way() -> None:
    tries = [decisions.next_attempt(WANTED, None, transient=True, now=0.0, jitter=part) for part in (0.0, 0.999)]

    assert [round(attempt.next_try, 1) for attempt in tries] == [2.5, 7.5]


def test_no_node_retries_before_the_pause_that_its_registry_requested() -> None:
    tries = [
        decisions.next_attempt(WANTED, None, transient=True, now=0.0, jitter=part, retry_after=60.0)
        for part in (0.0, 0.5, 0.999)
    ]
    assert [round(attempt.next_try) for attempt in tries] == [60, 75, 90]


def test_a_longer_pause_of_the_own_backoff_counts() -> None:
    attempt = Attempt(WANTED, 20, 0.0)
    later = decisions.next_attempt(WANTED, attempt, transient=True, now=0.0, jitter=0.5, retry_after=60.0)
    assert later.next_try == decisions.TRANSIENT_BACKOFF.cap


def test_the_longest_pause_that_a_registry_may_request_is_no_clock_that_was_set_back() -> None:
    attempt = decisions.next_attempt(
        WANTED, None, transient=True, now=NOW, jitter=0.999, retry_after=MAX_RETRY_AFTER_SECONDS
    )
    assert step(WANTED, Observed(attempt=attempt), H100) == RetryAt(attempt.next_try)


@pytest.mark.parametrize("retry_after", [0.0, 1.0, 60.0, MAX_RETRY_AFTER_SECONDS])
def test_a_registry_that_is_busy_for_an_hour_gets_few_retries_of_a_thousand_nodes_at_once(retry_after: float) -> None:
    chance, nodes, hour = random.Random(7), 1000, 3600.0
    retries = []
    for _ in range(nodes):
        attempt, now = None, chance.random()  # every node sees the new cache within a second
        while now < hour:
            attempt = decisions.next_attempt(
                WANTED, attempt, transient=True, now=now, jitter=chance.random(), retry_after=retry_after
            )
            now = attempt.next_try
            retries.append(now)
        assert attempt is not None
        assert attempt.count <= 20
    per_second = Counter(int(now) for now in retries)
    assert max(per_second.values()) <= nodes * 0.25
    later = [count for second, count in per_second.items() if second >= 120]
    assert max(later) <= nodes * 0.05


def test_a_message_is_one_bounded_line() -> None:
    assert decisions.bounded("a\n b\t c") == "a b c"
    assert len(decisions.bounded("x" * 5000)) == decisions.MAX_MESSAGE


def test_a_policy_has_another_name_when_anything_of_it_changes() -> None:
    base = Verification(policies=[Policy(keys=["-----BEGIN PUBLIC KEY-----"])])

    assert name_of(base) == name_of(Verification(policies=[Policy(keys=["-----BEGIN PUBLIC KEY-----"])]))
    assert name_of(base) != name_of(Verification(policies=[Policy(keys=["-----BEGIN PUBLIC KEY-----", "x"])]))
    assert name_of(base) != name_of(Verification(mode="off", policies=base.policies))


def test_a_key_file_with_another_key_is_another_policy(tmp_path: Path) -> None:
    key = tmp_path / "cosign.pub"
    verification = Verification(policies=[Policy(keys=[str(key)])])
    names = [name_of(verification)]
    for text in ("one", "two"):
        key.write_text(text)
        names.append(name_of(verification))

    assert len(set(names)) == 3


def test_the_versions_in_the_label_count_also_after_a_restart(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "state", tmp_path / "run")
    compiled = structs.replace(CHECK, targets=(GpuTarget("cuda", "90", 32, cuda_version="13.0"),))
    checks.save(layout, WANTED.ref, compiled)
    old = structs.replace(H100, driver_version="470.82.01")
    found = step(WANTED, Observed(READY, checks.load(layout, WANTED.ref), 71), old)
    assert isinstance(found, WritePointer)
    assert (found.pointer.state, found.pointer.reason) == (CacheState.INCOMPATIBLE, "DriverTooOld")
    assert "470.82.01" in found.pointer.message


def test_required_attestations_are_part_of_the_policy_and_none_changes_no_earlier_check() -> None:
    plain = Policy(keys=["/keys/ours.pub"])
    # What versions without attestations encoded: their checks stay valid.
    rules = (
        b'{"mode":"enforce","policies":[{"keys":["/keys/ours.pub"],"images":["*"],"namespaces":[],"require":"any",'
        b'"identities":[],"tlog":"optional","trustedRoot":"","tlogLookup":false}]}'
    )
    assert name_of(Verification(policies=[plain])) == fingerprint(("/keys/ours.pub",), rules)
    attested = [
        structs.replace(plain, attestations=[RequiredAttestation("https://t.test/v1", rules)])
        for rules in ([], [PredicateRule("predicate.a")], [PredicateRule("predicate.b")])
    ]
    elsewhere = structs.replace(plain, signature_repository="registry.example/signatures")
    names = {name_of(Verification(policies=[policy])) for policy in (plain, elsewhere, *attested)}
    assert len(names) == 5
