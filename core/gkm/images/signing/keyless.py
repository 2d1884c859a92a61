"""Keyless signing: Fulcio issues a certificate, valid for minutes, to the identity in an OpenID token.

GKM checks the certificate with the verifiers' trusted root before it signs. The token is a secret until it expires:
GKM sends it only to Fulcio and never puts it into a message.
Source: sigstore/fulcio, fulcio.proto (v2); sigstore's client specification, "Signing".
"""

from typing import Annotated

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from msgspec import Meta, Struct

from gkm.api.errors import GKMError, Reason
from gkm.api.policies import Identity, Policy
from gkm.images.manifest import decode
from gkm.images.signatures import certificates, trust_material
from gkm.images.signatures.certificates import Untrusted
from gkm.images.signatures.keys import UNREADABLE
from gkm.images.signatures.rekor import Rekor
from gkm.images.signatures.sigstore_services import SigstoreService
from gkm.images.signing.forms import ImageSigner
from gkm.images.signing.keys import PrivateKey

MAX_TOKEN_BYTES = 64 << 10
_PATH = "/api/v2/signingCert"
_OK = frozenset({200, 201})
_REFUSED = frozenset({400, 401, 403})


class _Chain(Struct):
    certificates: Annotated[list[str], Meta(min_length=1, max_length=8)]


class _Embedded(Struct):
    chain: _Chain


class _CertificateResponse(Struct, rename="camel"):
    signed_certificate_embedded_sct: _Embedded


def signer(fulcio: SigstoreService, trusted_root: str, token: str, log: Rekor) -> ImageSigner:
    """Return a signer with a new key and a certificate for the identity in a token.

    `trusted_root` is the path of the trusted root that verifies the certificates of `fulcio`.

    Raises:
        GKMError: UNAUTHORIZED if Fulcio rejects the token, REGISTRY_UNAVAILABLE or NOT_ALLOWED if the request fails,
            SIGNATURE_INVALID if the trusted root does not verify the certificate.
    """
    key = PrivateKey.new()
    chain = _request_certificate(fulcio, key, _check_token(token))
    if chain[0].public_key() != key.key.public_key():
        raise fulcio.failure("its certificate is for another key", Reason.METADATA_INVALID)
    trusted = trust_material.root(trusted_root).trusted
    try:
        with certificates.readable():
            # At the time of issue, because the clock of this machine may be seconds behind.
            certificates.check(chain[0], trusted, chain[0].not_valid_before_utc)
            holder = certificates.holder(chain[0])
    except Untrusted as error:
        raise GKMError(
            Reason.SIGNATURE_INVALID,
            f"a signature with a certificate of {fulcio.url} would not be accepted: it {error}",
            "check that the trusted root belongs to this Fulcio",
        ) from error
    named = Identity(issuer=holder.issuer, subject=holder.identity)
    policy = Policy(identities=[named], trusted_root=trusted_root)
    der = tuple(each.public_bytes(serialization.Encoding.DER) for each in chain)
    return ImageSigner(key, policy, der, log)


def _request_certificate(fulcio: SigstoreService, key: PrivateKey, token: str) -> list[x509.Certificate]:
    # The new key signs the request, which proves possession of the key; Fulcio takes the name from the token.
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key.key, hashes.SHA256())
    body = msgspec.json.encode({"certificateSigningRequest": request.public_bytes(serialization.Encoding.PEM)})
    answer = fulcio.post(_PATH, body, f"Bearer {token}")
    if answer.status in _REFUSED:
        raise GKMError(
            Reason.UNAUTHORIZED,
            f"{fulcio.name} at {fulcio.url} gives no certificate for this identity token: it answers {answer.status}",
            "get a fresh token with the audience `sigstore`; they live for minutes",
        )
    if answer.status not in _OK:
        raise fulcio.failure(f"it answers {answer.status} to the request for a certificate")
    try:
        issued = decode(
            answer.body, _CertificateResponse, "its answer"
        ).signed_certificate_embedded_sct.chain.certificates
        return [x509.load_pem_x509_certificate(pem.encode()) for pem in issued]
    except UNREADABLE as error:
        raise fulcio.failure("it sends no certificates", Reason.METADATA_INVALID) from error


def _check_token(token: str) -> str:
    token = token.strip()
    if token and len(token) <= MAX_TOKEN_BYTES and token.isascii() and token.isprintable() and " " not in token:
        return token
    raise GKMError(
        Reason.UNAUTHORIZED,
        "the identity token is malformed: a token is one line of three parts with dots between them",
        "name a file that holds a token of your OpenID provider",
    )
