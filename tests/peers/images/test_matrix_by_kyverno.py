"""The real Kyverno reaches the verdicts of GKM with the signers' policy of our example, and differs where we say so."""

from pathlib import Path

import pytest
from gkm.api.config import Verification
from gkm.images.reference import Reference
from gkm.images.signatures.verify import Verifier
from support.images import kyverno
from support.images.matrix import ACCEPTED, REFUSED, Ground, Row
from support.operator.deployment import cache
from support.registry.clients import plain_client
from support.registry.push import Target
from support.sigstore.key_signatures import SigningKey, sign_bundle, sign_legacy
from support.sigstore.keyless import Flaw
from support.sigstore.kyverno import Kyverno

pytestmark = pytest.mark.peers
SIGNATURE = Row("signature", "bundle", "person", "person", log=1)
ATTESTATION = Row("attestation of another type", "bundle", "person", "person", "no signature", 1, flaw=Flaw.OTHER_TYPE)
BESIDE = Row("legacy beside a bundle", "legacy", "key", "key")


@pytest.fixture(params=["olareg", "distribution"])
def host(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param).host)


def ground_of(host: str, row: Row, controller: Kyverno, directory: Path) -> Ground:
    target = Target(host, f"kyverno/{str(row).strip('.').replace('.', '')}")
    return Ground.prepared(target, controller.sigstore, directory)


def allowed_by_gkm(ground: Ground, row: Row) -> bool | None:
    client = plain_client(ground.target.host)
    ref = Reference.parse(f"{ground.target}@{ground.digest}")
    return Verifier(Verification(policies=[ground.policy(row)])).verify(client, ref, "team").verified


def refusals(controller: Kyverno, ground: Ground, row: Row, *, strict: bool = False) -> list[str]:
    """Return why Kyverno refuses the image of a ground; `strict` accepts no attestation as a signature."""
    policy = kyverno.policy_of(row, ground, controller.tuf)
    if strict:
        policy = kyverno.signatures_only(policy)
    return controller.refusals(cache("one", f"{ground.target}@{ground.digest}", "team"), policy)


@pytest.mark.parametrize("row", [*ACCEPTED, *REFUSED], ids=str)
def test_kyverno_and_gkm_reach_the_same_verdict(row: Row, host: str, kyverno_cli: Kyverno, tmp_path: Path) -> None:
    ground = ground_of(host, row, kyverno_cli, tmp_path)
    row.place(ground, row)
    assert allowed_by_gkm(ground, row) is row.accepted
    expected = [] if row.accepted else ["no trusted signer has signed the image of this cache"]
    assert refusals(kyverno_cli, ground, row) == expected


def test_kyverno_takes_an_attestation_for_a_signature_unless_the_policy_names_the_type(
    host: str, kyverno_cli: Kyverno, tmp_path: Path
) -> None:
    ground = ground_of(host, ATTESTATION, kyverno_cli, tmp_path)
    ATTESTATION.place(ground, ATTESTATION)
    assert not allowed_by_gkm(ground, ATTESTATION)
    assert refusals(kyverno_cli, ground, ATTESTATION) == []
    assert refusals(kyverno_cli, ground, ATTESTATION, strict=True)
    SIGNATURE.place(ground, SIGNATURE)
    assert allowed_by_gkm(ground, SIGNATURE)
    assert refusals(kyverno_cli, ground, SIGNATURE, strict=True) == []


def test_kyverno_reads_no_legacy_signature_beside_a_bundle(host: str, kyverno_cli: Kyverno, tmp_path: Path) -> None:
    ground = ground_of(host, BESIDE, kyverno_cli, tmp_path)
    sign_legacy(ground.target, ground.digest, ground.key)
    assert refusals(kyverno_cli, ground, BESIDE) == []
    sign_bundle(ground.target, ground.digest, SigningKey())
    assert allowed_by_gkm(ground, BESIDE)
    assert refusals(kyverno_cli, ground, BESIDE)
