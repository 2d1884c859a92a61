"""Signatures by certificates of an authority that a policy names, without a log: what is valid, and each flaw."""

import datetime as dt
from pathlib import Path

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID
from gkm.api.errors import GKMError
from gkm.api.policies import Identity, Policy, Verification
from gkm.api.signers import Signer
from gkm.images.signatures.evaluation import SignatureFinding, TrustPolicy
from gkm.images.signatures.signature_formats import parse_legacy
from support.cluster.certificates import Authority, Period
from support.images.keyless import ALICE, DIGEST, SIGSTORE
from support.registry.push import Target
from support.sigstore.issued_signatures import SPIFFE, Issued
from support.sigstore.key_signatures import payload_of
from support.sigstore.keyless import Service

ROOT, STRANGE = Authority.create("our root"), Authority.create("our root")
BETWEEN = Authority.create("between", ROOT)
NOW = dt.datetime.now(dt.UTC)
HOUR = dt.timedelta(hours=1)
VALID = Period.around(NOW, HOUR, 24 * HOUR)
PAYLOAD = payload_of(Target("registry.example", "team/x"), DIGEST)
TAMPERED = payload_of(Target("registry.example", "team/y"), DIGEST)


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    path = tmp_path / "ca.crt"
    path.write_bytes(ROOT.pem)
    return path


def policy(ca: Path, **more: str) -> Policy:
    return Policy(identities=[Identity(ca_file=str(ca), **({"subject": SPIFFE} | more))])


def judged(named: Policy, issued: Issued, digest: str = DIGEST) -> SignatureFinding:
    return TrustPolicy.from_policy(0, named).evaluate(parse_legacy(*issued.legacy(PAYLOAD)), digest)


def test_a_certificate_of_the_authority_with_the_name_is_valid(ca: Path) -> None:
    finding = judged(policy(ca), Issued.by(ROOT, SPIFFE, period=VALID))
    assert (finding.ok, finding.signer) == (True, Signer(identity=SPIFFE, issuer=f"x509:{ca}"))
    assert finding.signed is None
    assert TrustPolicy.from_policy(0, policy(ca)).is_satisfied([finding.signer])


def test_certificates_in_between_come_with_the_signature(ca: Path) -> None:
    assert judged(policy(ca), Issued.by(BETWEEN, SPIFFE, period=VALID, chain=(BETWEEN, ROOT))).ok
    alone = judged(policy(ca), Issued.by(BETWEEN, SPIFFE, period=VALID))
    assert alone.reason == "it was made with a certificate that no trusted authority issued"


def test_the_chain_of_a_signer_makes_no_authority_trusted(ca: Path) -> None:
    finding = judged(policy(ca), Issued.by(STRANGE, SPIFFE, period=VALID, chain=(STRANGE,)))
    assert finding.reason == "it was made with a certificate that no trusted authority issued"


@pytest.mark.parametrize(
    ("issued", "reason"),
    [
        (Issued.by(ROOT, SPIFFE, period=Period(NOW - 9 * HOUR, NOW - HOUR)), "is not valid now: sign the image again"),
        (Issued.by(ROOT, SPIFFE, period=Period(NOW + HOUR, NOW + 9 * HOUR)), "is not valid now: sign the image again"),
        (Issued.by(ROOT, SPIFFE, "spiffe://kserve/b", period=VALID), "does not state exactly one name"),
        (
            Issued.by(ROOT, SPIFFE, period=VALID, purpose=ExtendedKeyUsageOID.SERVER_AUTH),
            "is not for signing code",
        ),
        (Issued.by(ROOT, SPIFFE, period=VALID, chain=(ROOT,) * 5), "a chain of 5 certificates, at most 4 are read"),
        (Issued.by(ROOT, "spiffe://kserve/other", period=VALID), "whom the policy does not name"),
    ],
)
def test_a_flaw_makes_it_invalid(ca: Path, issued: Issued, reason: str) -> None:
    finding = judged(policy(ca), issued)
    assert not finding.ok
    assert reason in finding.reason


def test_an_authority_that_has_expired_issues_nothing(tmp_path: Path) -> None:
    expired = Authority.create("expired", period=Period(NOW - 48 * HOUR, NOW - HOUR))
    path = tmp_path / "expired.crt"
    path.write_bytes(expired.pem)
    finding = judged(policy(path), Issued.by(expired, SPIFFE, period=VALID))
    assert finding.reason == "it was made with a certificate that no trusted authority issued"


def test_another_image_and_another_payload_are_refused(ca: Path) -> None:
    issued = Issued.by(ROOT, SPIFFE, period=VALID)
    assert judged(policy(ca), issued, "sha256:" + "b" * 64).reason == "it signs another image"
    _, annotations = issued.legacy(PAYLOAD)
    finding = TrustPolicy.from_policy(0, policy(ca)).evaluate(parse_legacy(TAMPERED, annotations), DIGEST)
    assert finding.reason == "it was not made by its certificate, or was changed since"


@pytest.mark.parametrize(
    ("pattern", "name", "ok"),
    [
        (r"spiffe://kserve/.*", SPIFFE, True),
        (r"kserve", SPIFFE, False),
        (r"signer\.kserve\.example", "signer.kserve.example", True),
    ],
)
def test_a_pattern_matches_the_whole_name(ca: Path, pattern: str, name: str, *, ok: bool) -> None:
    named = policy(ca, subject="", subject_reg_exp=pattern)
    assert judged(named, Issued.by(ROOT, name, period=VALID)).ok is ok


def test_a_replaced_authority_counts_at_once(ca: Path) -> None:
    issued = Issued.by(ROOT, SPIFFE, period=VALID)
    ca.write_bytes(STRANGE.pem + STRANGE.pem)
    assert not judged(policy(ca), issued).ok
    assert str(ca) in Verification(policies=[policy(ca)]).files()


def test_a_policy_may_name_both_kinds_of_certificates(ca: Path, tmp_path: Path) -> None:
    keyless = Identity(ALICE.issuer, ALICE.subject)
    ours = Identity(ca_file=str(ca), subject=SPIFFE)
    named = Policy(identities=[keyless, ours], require="all", trusted_root=str(SIGSTORE.write_trusted_root(tmp_path)))
    trust = TrustPolicy.from_policy(0, named)
    by_alice = trust.evaluate(parse_legacy(*Service(SIGSTORE).legacy(PAYLOAD, ALICE)), DIGEST)
    by_issued = judged(named, Issued.by(ROOT, SPIFFE, period=VALID))
    assert by_alice.ok
    assert trust.is_satisfied([by_alice.signer, by_issued.signer])
    assert not trust.is_satisfied([by_issued.signer])


def test_a_file_without_certificates_is_told(tmp_path: Path) -> None:
    path = tmp_path / "ca.crt"
    path.write_text("no certificate")
    with pytest.raises(GKMError, match="holds no PEM certificates"):
        TrustPolicy.from_policy(0, policy(path))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"issuer": "https://a", "ca_file": "/ca", "subject": "x"}, "either `issuer` or `caFile`"),
        ({"subject": "x"}, "either `issuer` or `caFile`"),
        ({"issuer": "x509:/ca", "subject": "x"}, "there is `caFile`"),
    ],
)
def test_an_identity_has_one_authority(words: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Identity(**words)


def test_a_log_is_not_required_of_signatures_that_have_none() -> None:
    identity = Identity(ca_file="/ca", subject="x")
    with pytest.raises(ValueError, match="not possible with `caFile`"):
        Policy(identities=[identity], tlog="required", trusted_root="/root.json")
    with pytest.raises(ValueError, match="need `trustedRoot`"):
        Policy(identities=[identity, Identity("https://a", "x")])
