"""A signed statement proves a capture for one family and one base: for no other, and not without them."""

from dataclasses import replace

import pytest
from gkm.api.config import Config, Policy, Verification
from gkm.api.errors import GKMError, Reason
from gkm_operator.captures.objects import Announcement, merged_announcements
from gkm_operator.captures.reconciler import prove
from gkm_operator.images import CheckedImages
from support.agent.captured_registry import MADE, NOW, CapturedInRegistry, captured, captured_once, server
from support.operator.captures import digest, reported_as

__all__ = ["captured", "captured_once", "server"]
BASE = digest(7)


def proven(captured: CapturedInRegistry, **changes: object) -> bool:
    """Return whether the signatures prove what is announced, with these changes."""
    policy = Policy([captured.key.public.pem.decode()], tlog="ignored")
    config = Config(registries=captured.node.config.registries, verification=Verification(policies=[policy]))
    report = reported_as(captured.report, "llama", BASE)
    registry = captured.ref.name.removesuffix("/ml-apps/triton")
    (announced,), _ = merged_announcements("ml-apps", [("node-1", report)], registry, NOW)  # type: ignore[list-item]
    claimed: Announcement = replace(announced, **changes)  # type: ignore[arg-type]
    try:
        return prove(CheckedImages.of(config), claimed, NOW, cluster=False) == MADE
    except GKMError as error:
        assert error.reason is Reason.SIGNATURE_MISSING
        return False


def test_a_statement_proves_a_capture_of_its_family_on_top_of_its_base(captured: CapturedInRegistry) -> None:
    assert not proven(captured)
    captured.state("2026-01-01T00:00:00Z", family="llama", base=BASE)
    assert proven(captured)


@pytest.mark.parametrize(
    "claim",
    [{"family": "qwen"}, {"base": ""}, {"base": digest(8)}, {"namespace": "others"}],
    ids=["family", "no base", "another base", "namespace"],
)
def test_it_proves_no_other_claim(captured: CapturedInRegistry, claim: dict[str, str]) -> None:
    captured.state("2026-01-01T00:00:00Z", family="llama", base=BASE)
    assert not proven(captured, **claim)


def test_a_statement_without_a_family_proves_none(captured: CapturedInRegistry) -> None:
    # The agent's own statement about the image is one of a capture by itself.
    assert not proven(captured, base="")
    assert proven(captured, family="", base="")
