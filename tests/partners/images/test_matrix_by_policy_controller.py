"""The real policy-tester of sigstore's policy-controller reaches the verdicts of GKM with the policies of our example.

Where it does not, the row is below, with the reason.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.images import policy_controller
from support.images.matrix import ACCEPTED, ATTESTATION, REFUSED, Ground, Row
from support.peers import require
from support.registry.push import Target
from support.sigstore.keyless import Flaw
from support.sigstore.policy_tester import PolicyTester, trust_root
from support.sigstore.services import Sigstore
from support.sigstore.tuf_repository import TufRepository, tuf_repository

pytestmark = pytest.mark.heavy

SIGSTORE = Sigstore()
KEY_BUNDLES = {"key bundle", "key bundle rekor1", "key bundle rekor2 tsa"}
"""GKM accepts them. policy-controller 0.15 reads bundles of keyless authorities only (its issue 1958)."""
LEGACY = (
    Row("other entry legacy by key", "legacy", "key", "key", "another signature", 1, flaw=Flaw.OTHER_ENTRY),
    Row("other log legacy by key", "legacy", "key", "key", "not trusted", 1, flaw=Flaw.OTHER_LOG),
)

SAYS = {
    "another issuer bundle": "expected issuer value",
    "another issuer legacy": "none of the expected identities matched",
    "another key legacy": "invalid signature",
    "another person bundle": "expected SAN value",
    "another person legacy": "none of the expected identities matched",
    "attestation of another type": "no matching attestations with type https://sigstore.dev/cosign/sign/v1",
    "copied .sig tag": "invalid or missing digest in claim",
    "copied .sig tag keyless": "invalid or missing digest in claim",
    "log entry changed": "not enough verified log entries",
    "log entry of another legacy": "failed to extract signature from bundle",
    "no log entry": "not enough verified log entries",
    "no tsa token": "threshold not met for verified signed timestamps",
    "other entry legacy by key": "failed to extract signature from bundle",
    "other log legacy by key": "rekor log public key not found",
    "payload changed": "invalid signature",
    "rebuilt referrer keyless": "provided artifact digest does not match any digest in statement",
    "root hash changed": "does not match expected root",
    "signature changed": "transparency log signature does not match",
    "tsa token changed": "certificate embedded in the TSR does not match",
}
"""Why policy-controller refuses the other rows than those of a bundle by a key, in which it finds no signature."""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TufRepository]:
    root = SIGSTORE.write_trusted_root(tmp_path_factory.mktemp("sigstore"))
    with tuf_repository(root.read_bytes()) as repository:
        yield repository


@pytest.fixture(scope="module")
def tester(repository: TufRepository, tmp_path_factory: pytest.TempPathFactory) -> PolicyTester:
    for command in ("tuf-initialize", "policy-tester"):
        require.peer(command)
    return PolicyTester.create(tmp_path_factory.mktemp("policy-tester") / "home", repository)


@pytest.mark.parametrize("row", [*ACCEPTED, *REFUSED, *LEGACY, ATTESTATION], ids=str)
def test_policy_controller_and_gkm_reach_the_same_verdict(
    row: Row, host: str, tester: PolicyTester, tmp_path: Path
) -> None:
    ground = Ground.prepared(Target(host, f"controller/{row.repository}"), SIGSTORE, tmp_path)
    row.place(ground, row)
    policy = policy_controller.policy_of(row, ground)
    root = trust_root(SIGSTORE) if row.form == "legacy" else None
    refusals = tester.refusals(ground.image, [policy], root)
    assert ground.accepted(row) is row.accepted
    if row.accepted and row.name not in KEY_BUNDLES:
        assert refusals == []
    else:
        (refusal,) = refusals
        assert SAYS.get(row.name, "no signatures found") in refusal
