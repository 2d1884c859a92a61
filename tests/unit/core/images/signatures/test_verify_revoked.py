"""Revocation by policies: from stored signers and files alone, without a registry."""

from pathlib import Path

import pytest
from gkm.api.config import Identity, Policy, Verification
from gkm.api.errors import Reason
from gkm.api.signers import Signer
from gkm.images.reference import Reference
from gkm.images.signatures.verify import Verdict, Verifier
from support.sigstore.key_signatures import SigningKey
from support.sigstore.services import Sigstore

REF = Reference.parse("registry.example/team/cache@sha256:" + "a" * 64)
FIRST, SECOND = SigningKey(), SigningKey()
ISSUER = "https://issuer.example.test"
ALICE, BOB = (Signer(identity=f"{name}@example.test", issuer=ISSUER) for name in ("alice", "bob"))


def key(*keys: SigningKey, **policy: object) -> Policy:
    return Policy(keys=[key.public_pem.decode() for key in keys], **policy)  # type: ignore[arg-type]


def by(key: SigningKey) -> Signer:
    return Signer(key.hint)


def revoked(signers: list[Signer], *policies: Policy, mode: str = "enforce") -> Verdict | None:
    demand = Verification(mode, list(policies))  # type: ignore[arg-type]
    return Verifier(demand).revoked(REF, "team", signers)


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(Sigstore().write_trusted_root(tmp_path))


def test_a_key_that_a_policy_names_is_not_revoked() -> None:
    assert revoked([by(FIRST)], key(FIRST)) is None


def test_a_key_that_no_policy_names_any_more_is_refused() -> None:
    found = revoked([by(FIRST)], key(SECOND))
    assert found is not None
    assert (found.verified, found.allowed, found.reason) == (False, False, Reason.SIGNATURE_INVALID)
    assert f"it was signed by key {FIRST.hint[:12]}…, which no policy names any more" in found.message


def test_one_of_two_signers_suffices_if_any_is_required() -> None:
    assert revoked([by(FIRST), by(SECOND)], key(SECOND, SigningKey())) is None


def test_one_of_two_signers_does_not_suffice_where_two_policies_hold() -> None:
    assert revoked([by(FIRST), by(SECOND)], key(FIRST), key(SigningKey())) is not None


def test_a_policy_that_requires_more_revokes_nothing() -> None:
    assert revoked([by(FIRST)], key(FIRST, SECOND, require="all")) is None


def test_a_key_of_a_policy_for_other_namespaces_is_refused() -> None:
    assert revoked([by(FIRST)], key(SECOND), key(FIRST, namespaces=["other"])) is not None


def test_without_a_known_signer_only_the_registry_decides() -> None:
    assert revoked([], key(FIRST)) is None


def test_without_a_policy_for_the_image_it_is_refused() -> None:
    found = revoked([], key(FIRST, images=["other.example/*"]))
    assert found is not None
    assert found.reason is Reason.SIGNATURE_MISSING


def test_a_key_that_cannot_be_read_refuses(tmp_path: Path) -> None:
    found = revoked([by(FIRST)], Policy(keys=[str(tmp_path / "gone.pub")]))
    assert found is not None
    assert found.reason is Reason.SIGNATURE_INVALID


def test_a_holder_that_no_policy_names_any_more_is_refused(root: str) -> None:
    named = Policy(identities=[Identity(ISSUER, BOB.identity)], trusted_root=root)
    assert revoked([BOB], named) is None
    found = revoked([ALICE], named)
    assert found is not None
    assert found.reason is Reason.IDENTITY_MISMATCH
    assert f"it was signed by {ALICE}" in found.message


def test_the_mode_warn_allows_a_revoked_image_with_a_warning() -> None:
    found = revoked([by(FIRST)], key(SECOND), mode="warn")
    assert found is not None
    assert (found.verified, found.allowed) == (False, True)


def test_the_mode_off_revokes_nothing() -> None:
    assert revoked([by(FIRST)], key(SECOND), mode="off") is None
