"""Real cosign verifies the statements that GKM attaches to images, and they are no signatures."""

from pathlib import Path

import pytest
from gkm.api.config import Policy, Verification
from gkm.images.reference import Reference
from gkm.images.signatures.attestations import attestations
from gkm.images.signatures.verify import Verifier
from gkm.images.signing import keys as signing_keys
from gkm.images.signing import sign
from gkm.images.signing.forms import ImageSigner
from releasing import signing
from support.registry.clients import plain_client
from support.sigstore.cosign import PLAIN, Cosign, CosignFailed

KIND = "https://statement.test/v1"


def verified(cosign: Cosign, ref: Reference, kind: str) -> str:
    options = ("--insecure-ignore-tlog=true", "--trusted-root", str(cosign.trusted_root), *PLAIN)
    return cosign.run("verify-attestation", "--key", str(cosign.public_key), "--type", kind, *options, str(ref))


def test_a_statement_is_attached_once_and_verified_by_its_type(ref: Reference, cosign: Cosign, tmp_path: Path) -> None:
    signer = ImageSigner.by_key(signing_keys.read(str(cosign.private_key), b""))
    first = sign.attest(plain_client(ref.registry), ref, KIND, {"a": 1}, signer)
    assert sign.attest(plain_client(ref.registry), ref, KIND, {"a": 1}, signer) == first
    assert sign.attest(plain_client(ref.registry), ref, KIND, {"a": 2}, signer) != first
    assert len(attestations(plain_client(ref.registry), ref, KIND)) == 2
    assert '"payload"' in verified(cosign, ref, KIND)
    with pytest.raises(CosignFailed, match="none of the attestations matched the predicate type"):
        verified(cosign, ref, "https://other.test/v1")
    stranger = Cosign.create(tmp_path / "stranger")
    with pytest.raises(CosignFailed, match="accepted signatures do not match threshold"):
        verified(stranger, ref, KIND)


def test_a_statement_is_no_signature(ref: Reference, cosign: Cosign) -> None:
    signer = ImageSigner.by_key(signing_keys.read(str(cosign.private_key), b""))
    sign.attest(plain_client(ref.registry), ref, KIND, {"b": 1}, signer)
    policy = Policy([cosign.public_key.read_text()])
    assert not Verifier(Verification(policies=[policy])).verify(plain_client(ref.registry), ref, "team").verified


def test_the_files_of_a_release_are_verified_by_one_statement(cosign: Cosign, tmp_path: Path) -> None:
    chart, values = tmp_path / "gkm-1.2.3.tgz", tmp_path / "values-digests.json"
    for path in (chart, values):
        path.write_text(path.name)
    signer = ImageSigner.by_key(signing_keys.read(str(cosign.private_key), b""))
    target = tmp_path / "signed"
    target.mkdir()
    sums, bundle = signing.write(target, [chart, values], "1.2.3", signer)
    words = ["verify-blob-attestation", "--key", str(cosign.public_key), "--bundle", str(bundle)]
    words += ["--type", signing.PREDICATE, "--insecure-ignore-tlog=true", "--trusted-root", str(cosign.trusted_root)]
    for path in (chart, values, sums):
        cosign.run(*words, str(path))
    chart.write_text("another one")
    with pytest.raises(CosignFailed, match="artifact digests do not match digests in statement"):
        cosign.run(*words, str(chart))
