"""Signatures by a certificate of an authority: GKM verifies those of real cosign, and cosign those that tests make."""

import datetime as dt
from pathlib import Path

import pytest
from gkm.api.config import Identity, Policy
from gkm.api.errors import Reason
from gkm.images.reference import Reference
from support.cluster.certificates import Authority, Period
from support.images.matrix import verdict_on
from support.peers import require
from support.registry.push import Target
from support.sigstore.cosign import PLAIN, Cosign
from support.sigstore.issued_signatures import SPIFFE, Issued
from support.sigstore.key_signatures import payload_of, push_legacy

NOW = dt.datetime.now(dt.UTC)
VALID = Period.around(NOW, dt.timedelta(hours=1), dt.timedelta(days=1))
EARLIER = Period.around(NOW, dt.timedelta(hours=2), dt.timedelta(days=2))
"""cosign checks the chain at the time from which the leaf is valid, GKM now: so authorities are older than the leaf."""
ROOT = Authority.create("a root", period=EARLIER)
BETWEEN = Authority.create("between", ROOT, period=EARLIER)
ISSUED = Issued.by(BETWEEN, SPIFFE, period=VALID, chain=(BETWEEN, ROOT))


@pytest.fixture(scope="module")
def cosign2(tmp_path_factory: pytest.TempPathFactory) -> Cosign:
    require.peer("cosign2")
    return Cosign.create(tmp_path_factory.mktemp("cosign2"), "cosign2")


def policy(ca: Path, subject: str = SPIFFE) -> Policy:
    return Policy(identities=[Identity(ca_file=str(ca), subject=subject)])


def written(directory: Path) -> Path:
    """Write the files that cosign and GKM read; return the one with the root."""
    files = {"leaf.crt": ISSUED.pem, "chain.crt": ISSUED.chain_pem, "ca.crt": ROOT.pem, "leaf.key": ISSUED.key_pem}
    for name, content in files.items():
        (directory / name).write_bytes(content)
    return directory / "ca.crt"


def test_gkm_verifies_what_cosign_signs_with_a_certificate(cosign2: Cosign, ref: Reference, tmp_path: Path) -> None:
    ca = written(tmp_path)
    cosign2.run("import-key-pair", "--key", str(tmp_path / "leaf.key"), "--output-key-prefix", str(tmp_path / "own"))
    files = ("--certificate", str(tmp_path / "leaf.crt"), "--certificate-chain", str(tmp_path / "chain.crt"))
    key = ("--key", str(tmp_path / "own.key"))
    cosign2.run("sign", *key, *files, "--tlog-upload=false", *PLAIN, "--yes", str(ref))
    verdict = verdict_on(str(ref), policy(ca))
    assert verdict.verified, verdict.message
    assert verdict_on(str(ref), policy(ca, "spiffe://kserve/other")).reason is Reason.IDENTITY_MISMATCH


def test_cosign_verifies_what_tests_sign_as_kserve_does(cosign2: Cosign, ref: Reference, tmp_path: Path) -> None:
    ca = written(tmp_path)
    target = Target(ref.registry, ref.repository)
    payload, annotations = ISSUED.legacy(payload_of(target, ref.target))
    push_legacy(target, ref.target, payload, annotations)
    who = ("--certificate-identity", SPIFFE, "--certificate-oidc-issuer-regexp", ".*", "--ca-roots", str(ca))
    no_log = ("--insecure-ignore-tlog=true", "--insecure-ignore-sct=true")
    cosign2.run("verify", *who, *no_log, *PLAIN, str(ref))
    assert verdict_on(str(ref), policy(ca)).verified
