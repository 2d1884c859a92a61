"""The real Kyverno reaches the verdicts of GKM with the signers' policy of our example, and differs where we say so."""

from pathlib import Path

import pytest
from support.images import kyverno
from support.images.matrix import ACCEPTED, ATTESTATION, REFUSED, Ground, Row
from support.operator.deployment import cache
from support.registry.push import Target
from support.sigstore.key_signatures import SigningKey, sign_bundle, sign_legacy
from support.sigstore.kyverno import Kyverno

pytestmark = pytest.mark.heavy

SIGNATURE = Row("signature", "bundle", "person", "person", log=1)
BESIDE = Row("legacy beside a bundle", "legacy", "key", "key")

UNSIGNED = ["no trusted signer has signed the image of this cache"]


def ground_of(host: str, row: Row, controller: Kyverno, directory: Path) -> Ground:
    return Ground.prepared(Target(host, f"kyverno/{row.repository}"), controller.sigstore, directory)


def refusals(controller: Kyverno, ground: Ground, row: Row, *, strict: bool = False) -> list[str]:
    """Return why Kyverno refuses the image of a ground; `strict` accepts no attestation as a signature."""
    policy = kyverno.policy_of(row, ground, controller.tuf)
    if strict:
        policy = kyverno.signatures_only(policy)
    return controller.refusals(cache("one", ground.image, "team"), policy)


@pytest.mark.parametrize("row", [*ACCEPTED, *REFUSED], ids=str)
def test_kyverno_and_gkm_reach_the_same_verdict(row: Row, host: str, kyverno_cli: Kyverno, tmp_path: Path) -> None:
    ground = ground_of(host, row, kyverno_cli, tmp_path)
    row.place(ground, row)
    assert ground.accepted(row) is row.accepted
    expected = [] if row.accepted else UNSIGNED
    assert refusals(kyverno_cli, ground, row) == expected


def test_kyverno_takes_an_attestation_for_a_signature_unless_the_policy_names_the_type(
    host: str, kyverno_cli: Kyverno, tmp_path: Path
) -> None:
    ground = ground_of(host, ATTESTATION, kyverno_cli, tmp_path)
    ATTESTATION.place(ground, ATTESTATION)
    assert not ground.accepted(ATTESTATION)
    assert refusals(kyverno_cli, ground, ATTESTATION) == []
    assert refusals(kyverno_cli, ground, ATTESTATION, strict=True) == UNSIGNED
    SIGNATURE.place(ground, SIGNATURE)
    assert ground.accepted(SIGNATURE)
    assert refusals(kyverno_cli, ground, SIGNATURE, strict=True) == []


def test_kyverno_reads_no_legacy_signature_beside_a_bundle(host: str, kyverno_cli: Kyverno, tmp_path: Path) -> None:
    ground = ground_of(host, BESIDE, kyverno_cli, tmp_path)
    sign_legacy(ground.target, ground.digest, ground.key)
    assert refusals(kyverno_cli, ground, BESIDE) == []
    sign_bundle(ground.target, ground.digest, SigningKey())
    assert ground.accepted(BESIDE)
    assert refusals(kyverno_cli, ground, BESIDE) == UNSIGNED
