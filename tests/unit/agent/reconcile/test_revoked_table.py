"""What is refused, in every situation that a node can be in: the table of docs/design/node-state.md, "Revoked"."""

from dataclasses import dataclass, replace
from itertools import product

import pytest
from gkm.api.errors import Reason
from gkm.api.targets import GpuTarget
from gkm.gpus import preflight
from gkm.gpus.values import Inventory
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer
from gkm_agent.caches import decisions
from gkm_agent.caches.approvals import Approval
from gkm_agent.caches.decisions import Action, Observed, StartPull, WritePointer, decide
from gkm_agent.caches.model import PullHold, WantedCache
from support.agent.fakes import A100, H100, digest_of

ONE, TWO = digest_of("one"), digest_of("two")
WANTED = WantedCache(CacheRef("ml-apps", "llama"), "registry.example/team/cache:1")
CHECK = Approval(WANTED.image, ONE, "policy", (GpuTarget("cuda", "90", 32),))
FITS, FITS_NOT = Inventory((H100,)), Inventory((A100,))
LOST = Inventory((), ("nvmlInit: Driver Not Loaded",))
READY = decisions.verdict_pointer(WANTED, CHECK, preflight.check(CHECK.targets, (H100,)), FITS, 71)
WAITS_FOR_GPUS = decisions.make_pointer(WANTED, ONE, CacheState.PENDING, Reason.GPU_LOST, "waiting")
NOW = 1_750_000_000.0

HOLDS = (
    None,
    PullHold("RegistryUnavailable", "waiting for the controller"),
    *(PullHold("SignatureMissing", "no signature was found", final=True, digest=digest) for digest in (ONE, TWO, "")),
)
POINTERS = (
    None,
    *(replace(READY, state=state) for state in CacheState),
    replace(READY, digest=TWO),
    replace(READY, image="registry.example/team/cache:2"),
    replace(READY, message=decisions.serve_revoked_message("SignatureMissing", "no signature was found")),
    WAITS_FOR_GPUS,
)
CHECKS = (
    None,
    CHECK,
    Approval(CHECK.image, ONE, "older", CHECK.targets),
    Approval(CHECK.image, TWO, "policy", CHECK.targets),
)
DIGESTS = (None, ONE)


@dataclass(frozen=True)
class Case:
    """One situation."""

    hold: PullHold | None
    pointer: Pointer | None
    check: Approval | None
    entry_bytes: int | None
    inventory: Inventory
    digest: str | None

    def decide(self, *, serve_revoked: bool, pointer: Pointer | None = None) -> Action | None:
        wanted = replace(WANTED, hold=self.hold, digest=self.digest)
        known = Observed(pointer or self.pointer, self.check, self.entry_bytes)
        return decide(wanted, known, self.inventory, "policy", NOW, serve_revoked=serve_revoked)

    def said(self, *, serve_revoked: bool) -> Pointer | None:
        """Return the pointer that stands after the step."""
        step = self.decide(serve_revoked=serve_revoked)
        return step.pointer if isinstance(step, WritePointer) else self.pointer

    @property
    def refused(self) -> bool:
        return self.hold is not None and self.hold.final

    def serves(self, digest: str) -> bool:
        """Return whether the node serves it by the words of the page."""
        pointer, check = self.pointer, self.check
        if pointer is None or check is None or self.entry_bytes is None or not digest:
            return False
        here = pointer.state is CacheState.READY or pointer == WAITS_FOR_GPUS
        return here and pointer.digest == check.digest == digest and pointer.image == check.image == WANTED.image


CASES = [
    Case(*values)
    for values in product(HOLDS, POINTERS, CHECKS, (None, 71), (FITS, FITS_NOT, LOST), DIGESTS)
    # The source names a digest or a reason to wait, never both.
    if values[0] is None or values[5] is None
]
REFUSED = [case for case in CASES if case.refused]
OTHERS = [case for case in CASES if not case.refused]


def test_a_withdrawn_cache_is_failed_whatever_its_state_was() -> None:
    states = {(pointer.state, pointer.reason) for case in REFUSED if (pointer := case.said(serve_revoked=False))}
    assert states == {(CacheState.FAILED, "SignatureMissing")}
    assert not any(isinstance(case.decide(serve_revoked=False), StartPull) for case in REFUSED)


def test_only_a_served_cache_stays_and_nothing_is_fetched_for_it() -> None:
    seen = set()
    for case in REFUSED:
        assert case.hold is not None
        stays = case.serves(case.hold.digest) and case.inventory is not FITS_NOT
        pointer = case.said(serve_revoked=True)
        assert pointer is not None
        assert not isinstance(case.decide(serve_revoked=True), StartPull)
        if not stays:
            assert (pointer.state, pointer.reason) == (CacheState.FAILED, "SignatureMissing"), case
        elif case.inventory is LOST:
            assert (pointer.state, pointer.reason) == (CacheState.PENDING, Reason.GPU_LOST), case
        else:
            assert (pointer.state, pointer.digest, pointer.reason) == (CacheState.READY, case.hold.digest, ""), case
            assert "SignatureMissing" in pointer.message
            assert "no signature was found" in pointer.message
        seen.add(pointer.state)
    assert seen == {CacheState.FAILED, CacheState.PENDING, CacheState.READY}


@pytest.mark.parametrize("serve_revoked", [False, True])
def test_an_unchanged_pointer_is_not_written_again(serve_revoked: bool) -> None:  # noqa: FBT001 -- a parameter
    for case in REFUSED:
        pointer = case.said(serve_revoked=serve_revoked)
        assert case.decide(serve_revoked=serve_revoked, pointer=pointer) is None, case


def test_keeping_means_nothing_where_the_check_counts() -> None:
    counting = [case for case in OTHERS if case.check is CHECK]
    assert counting
    assert all(case.decide(serve_revoked=True) == case.decide(serve_revoked=False) for case in counting)


def test_what_is_asked_again_is_served_meanwhile_only_where_it_was_served() -> None:
    asked = [(case, step) for case in OTHERS if isinstance(step := case.decide(serve_revoked=True), StartPull)]
    serving = [case for case, step in asked if step.serving]
    assert serving
    for case in serving:
        assert case.serves(ONE)
        assert case.pointer is not None
        assert case.pointer.state is CacheState.READY
        assert case.inventory is FITS
    withdrawn = [step for case in OTHERS if isinstance(step := case.decide(serve_revoked=False), StartPull)]
    assert not any(step.serving for step in withdrawn)


def test_an_outdated_check_withdraws_nothing_while_revoked_caches_are_served() -> None:
    stale = [case for case in OTHERS if case.check is not None and case.check.policy == "older"]
    kept = [case for case in stale if case.serves(ONE) and case.inventory is FITS and case.hold is None]
    assert kept
    for case in kept:
        step = case.decide(serve_revoked=True)
        pointer = case.said(serve_revoked=True)
        assert pointer is not None
        assert pointer.state is CacheState.READY
        assert isinstance(step, WritePointer) or step == StartPull(ONE, serving=True)
        assert case.decide(serve_revoked=True, pointer=pointer) == StartPull(ONE, serving=True)
