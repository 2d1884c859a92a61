"""The statement about a captured image proves content, hardware, namespace and time."""

from datetime import timedelta

import pytest
from gkm.api.config import Policy, Verification
from gkm.api.errors import GKMError, Reason
from gkm.images.captured import statement
from gkm.images.signatures.verify import Verifier
from gkm.images.signing.keys import PrivateKey
from support.agent.captured_registry import MADE, NOW, CapturedInRegistry, captured, captured_once, server

__all__ = ["captured", "captured_once", "server"]


def test_the_statement_of_the_agent_proves_content_hardware_namespace_and_time(captured: CapturedInRegistry) -> None:
    assert captured.check() == MADE


def test_the_newest_signed_time_counts_and_none_that_is_to_come(captured: CapturedInRegistry) -> None:
    captured.state("2026-01-03T00:00:00Z")
    captured.state("2026-01-02T00:00:00Z")
    captured.state("9999-12-31T23:59:59Z")
    captured.state("2026-01-05T00:00:00Z", PrivateKey.new())
    assert captured.check() == MADE + timedelta(days=2)
    captured.check(now=MADE - timedelta(seconds=60))
    with pytest.raises(GKMError) as caught:
        captured.check(now=MADE - timedelta(seconds=61))
    assert caught.value.reason is Reason.SIGNATURE_MISSING


@pytest.mark.parametrize(
    "changes",
    [{"namespace": None}, {"namespace": "others"}, {"time": None}, {"time": "soon"}, {"time": "2026-01-01T00:00:00"}],
    ids=["no namespace", "another namespace", "no time", "none", "without an offset"],
)
def test_a_statement_without_its_namespace_or_a_time_counts_for_nothing(
    captured: CapturedInRegistry, changes: dict[str, object]
) -> None:
    signer = PrivateKey.new()
    captured.state("2026-01-01T00:00:00Z", signer, **changes)
    with pytest.raises(GKMError) as caught:
        captured.check(signer)
    assert caught.value.reason is Reason.SIGNATURE_MISSING
    captured.state("2026-01-01T00:00:00Z", signer)
    captured.check(signer)


def test_each_time_counts_with_the_number_of_signers_that_a_policy_requires(captured: CapturedInRegistry) -> None:
    second = PrivateKey.new()
    keys = [each.public.pem.decode() for each in (captured.key, second)]
    policy = Policy(keys, tlog="ignored", require=2)
    trusts = Verifier(Verification(policies=[policy])).trusts(captured.ref, "ml-apps")
    captured.state("2026-01-03T00:00:00Z", second)
    assert statement.check(captured.registry, captured.ref, trusts, captured.claim, NOW) == MADE


@pytest.mark.parametrize(
    "wrong",
    [
        {"namespace": "others"},
        {"hardware_key": "cuda-sm_100-r570-triton"},
        {"content_digest": f"sha256:{'0' * 64}"},
    ],
    ids=["namespace", "hardware", "content"],
)
def test_another_claim_is_not_proven(captured: CapturedInRegistry, wrong: dict[str, str]) -> None:
    with pytest.raises(GKMError) as caught:
        captured.check(wanted=captured.claim._replace(**wrong))
    assert caught.value.reason is Reason.SIGNATURE_MISSING


def test_the_statement_of_a_stranger_proves_nothing(captured: CapturedInRegistry) -> None:
    with pytest.raises(GKMError) as caught:
        captured.check(PrivateKey.new())
    assert caught.value.reason is Reason.SIGNATURE_MISSING


def test_without_a_policy_nothing_is_proven(captured: CapturedInRegistry) -> None:
    with pytest.raises(GKMError) as caught:
        statement.check(captured.registry, captured.ref, [], captured.claim, NOW)
    assert caught.value.reason is Reason.SIGNATURE_MISSING


def test_files_with_another_digest_than_stated_are_refused() -> None:
    stated = b'"namespace": "a", "time": "2026-01-01T00:00:00Z", "hardware": "cuda", "contentDigest": "sha256:0"'
    payload = b'{"predicate": {%s, "files": []}}' % stated
    with pytest.raises(GKMError) as caught:
        statement.states_in(payload)
    assert caught.value.reason is Reason.CONTENT_MISMATCH
