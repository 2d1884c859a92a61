"""Real cosign 2 and 3 verify the signatures of GKM, and GKM verifies the signatures of cosign."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from gkm.api.config import Identity, Policy
from gkm.api.errors import Reason
from gkm.images.reference import Reference
from gkm.images.signatures import keys
from gkm.images.signatures.rekor import Rekor
from gkm.images.signatures.signature_formats import SignatureForm
from gkm.images.signatures.sigstore_services import SigstoreService
from gkm.images.signing import keyless, sign
from gkm.images.signing import keys as signing_keys
from gkm.images.signing.forms import ImageSigner
from support.images.matrix import LAYER, verdict_on
from support.images.signers import private_key
from support.peers import require
from support.registry.clients import plain_client
from support.registry.push import Target
from support.registry.server import Registry
from support.sigstore.cosign import PLAIN, VERDICT, Cosign, CosignFailed
from support.sigstore.http_services import SigstoreServer, token
from support.sigstore.keyless import Person
from support.sigstore.services import Sigstore

ALICE = Person()


@pytest.fixture(scope="module")
def server() -> Iterator[SigstoreServer]:
    with SigstoreServer.start(Sigstore()) as server:
        yield server


@pytest.fixture(scope="module", params=["cosign", "cosign2"])
def other(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Cosign:
    """The real cosign, 3 or 2."""
    require.peer(request.param)
    return Cosign.create(tmp_path_factory.mktemp(request.param), request.param)


def unsigned(host: str, name: str) -> Reference:
    target = Target(host, f"ours/{name}")
    return Reference.parse(f"{target}@{target.image([(name.encode(), LAYER)])}")


def accepts(cosign: Cosign, ref: Reference, who: list[str], root: Path) -> bool:
    """Return whether `cosign verify` without options for the form accepts the image."""
    try:
        cosign.run("verify", *who, "--trusted-root", str(root), *PLAIN, str(ref))
    except CosignFailed as error:
        print(error)  # noqa: T201 -- the reason, for the reader of a failed test
        return False
    return True


def by_key(directory: Path, key: signing_keys.PrivateKey, *, logged: bool = False) -> list[str]:
    path = directory / f"{key.public.key_id[:12].replace('/', '_')}.pub"
    path.write_bytes(key.public.pem)
    return ["--key", str(path), *([] if logged else ["--insecure-ignore-tlog=true"])]


@pytest.mark.parametrize("kind", ["p256", "p384", "p521", "rsa2048", "ed25519"])
def test_cosign_verifies_a_signature_by_key(other: Cosign, host: str, kind: str, tmp_path: Path) -> None:
    ref = unsigned(host, f"{other.command}-{kind}")
    key = private_key(kind)
    sign.sign(plain_client(ref.registry), ref, ImageSigner.by_key(key))
    assert accepts(other, ref, by_key(tmp_path, key), other.trusted_root)
    assert not accepts(other, ref, by_key(tmp_path, private_key(kind)), other.trusted_root)
    assert verdict_on(str(ref), Policy([key.public.pem.decode()])).verified


def test_cosign_verifies_a_logged_signature_by_key(
    other: Cosign, host: str, server: SigstoreServer, tmp_path: Path
) -> None:
    ref = unsigned(host, f"{other.command}-logged")
    key = private_key()
    root = server.sigstore.write_trusted_root(tmp_path)
    log = Rekor(SigstoreService("Rekor", server.url))
    sign.sign(plain_client(ref.registry), ref, ImageSigner.by_key(key, log, str(root)))
    offline = ["--offline"] if other.command == "cosign2" else []
    assert accepts(other, ref, [*by_key(tmp_path, key, logged=True), *offline], root)
    assert verdict_on(str(ref), Policy([key.public.pem.decode()], tlog="required", trusted_root=str(root))).verified


def test_cosign_verifies_a_keyless_signature(other: Cosign, host: str, server: SigstoreServer, tmp_path: Path) -> None:
    ref = unsigned(host, f"{other.command}-keyless")
    root = server.sigstore.write_trusted_root(tmp_path)
    fulcio, log = SigstoreService("Fulcio", server.url), Rekor(SigstoreService("Rekor", server.url))
    signer = keyless.signer(fulcio, str(root), token(ALICE), log)
    sign.sign(plain_client(ref.registry), ref, signer)
    offline = ["--offline"] if other.command == "cosign2" else []
    for subject, good in ((ALICE.subject, True), ("mallory@example.test", False)):
        who = ["--certificate-identity", subject, "--certificate-oidc-issuer", ALICE.issuer, *offline]
        assert accepts(other, ref, who, root) is good
        named = Policy(identities=[Identity(ALICE.issuer, subject)], trusted_root=str(root))
        assert verdict_on(str(ref), named).verified is good


def test_gkm_and_cosign_sign_the_same_image_side_by_side(other: Cosign, host: str, tmp_path: Path) -> None:
    first, second, third = private_key(), keys.load(str(other.public_key)), private_key()
    ref = unsigned(host, f"{other.command}-beside")
    sign.sign(plain_client(ref.registry), ref, ImageSigner.by_key(first))
    old = ["--use-signing-config=false", "--new-bundle-format=false", "--tlog-upload=false"]
    new = ["--new-bundle-format=true", "--signing-config", str(other.signing_config)]
    for form in (old, new):
        other.run("sign", "--key", str(other.private_key), *form, *PLAIN, "--yes", str(ref))
    sign.sign(plain_client(ref.registry), ref, ImageSigner.by_key(third))
    pems = [key.pem.decode() for key in (first.public, second, third.public)]
    assert verdict_on(str(ref), Policy(pems, require="all")).verified
    for pem in pems:
        path = tmp_path / "one.pub"
        path.write_text(pem)
        who = ["--key", str(path), "--insecure-ignore-tlog=true"]
        assert accepts(other, ref, who, other.trusted_root)


def test_gkm_counts_legacy_signatures_that_cosign_attaches_as_referrers(other: Cosign, host: str) -> None:
    """By `--registry-referrers-mode=oci-1-1`, which cosign calls experimental: no tag names such a signature."""
    ref = unsigned(host, f"{other.command}-oci-1-1")
    trusted = Policy([str(other.public_key)])
    old = ["--use-signing-config=false", "--new-bundle-format=false", "--tlog-upload=false"]
    attached = ["--registry-referrers-mode=oci-1-1", "--key", str(other.private_key), *old, *PLAIN, "--yes", str(ref)]
    other.run("sign", *attached, environment={"COSIGN_EXPERIMENTAL": "1"})
    verdict = verdict_on(str(ref), trusted)
    assert (verdict.verified, [finding.form for finding in verdict.findings]) == (True, [SignatureForm.LEGACY])
    sign.sign(plain_client(ref.registry), ref, ImageSigner.by_key(private_key()))
    assert verdict_on(str(ref), trusted).verified
    stranger = verdict_on(str(ref), Policy([private_key().public.pem.decode()]))
    assert (stranger.verified, stranger.reason) == (False, Reason.SIGNATURE_INVALID)


def test_cosign_verifies_a_second_signer_where_tags_are_immutable(cosign: Cosign, tmp_path: Path) -> None:
    with Registry.start() as registry:
        registry.routes.refusal_to_change = 400
        ref = unsigned(registry.host, "immutable")
        first, second = private_key(), private_key()
        for key in (first, second):
            sign.sign(plain_client(ref.registry), ref, ImageSigner.by_key(key))
        for key in (first, second):
            assert accepts(cosign, ref, by_key(tmp_path, key), cosign.trusted_root)
        assert verdict_on(
            str(ref), Policy([key.public.pem.decode() for key in (first, second)], require="all")
        ).verified


def test_signatures_in_another_repository_count_both_ways(other: Cosign, host: str, tmp_path: Path) -> None:
    """cosign names it by COSIGN_REPOSITORY; cosign 2 ignores that for bundles, so it signs in the legacy form here."""
    ref, place = unsigned(host, f"{other.command}-elsewhere"), f"{host}/signatures/{other.command}"
    elsewhere = {"COSIGN_REPOSITORY": place}
    key, theirs = private_key(), str(other.public_key)
    form = ["--tlog-upload=false"]
    if other.command == "cosign":
        form = ["--signing-config", str(other.signing_config)]
    other.run("sign", "--key", str(other.private_key), *form, *PLAIN, "--yes", str(ref), environment=elsewhere)
    sign.sign(plain_client(ref.registry), ref, ImageSigner.by_key(key), place)
    for pem in (theirs, key.public.pem.decode()):
        assert verdict_on(str(ref), Policy([pem], signature_repository=place)).verified
        missing = verdict_on(str(ref), Policy([pem]))
        assert (missing.verified, missing.reason) == (False, Reason.SIGNATURE_MISSING)
    who = [*by_key(tmp_path, key), "--trusted-root", str(other.trusted_root), *PLAIN, str(ref)]
    other.run("verify", *who, environment=elsewhere)
    with pytest.raises(CosignFailed, match=VERDICT):
        other.run("verify", *who)
