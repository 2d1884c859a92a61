"""Signatures with log entries, by key or keyless, that cosign accepts; and ones that are wrong in one way.

A `Signed` has all the parts of a signature; `bundle` and `annotations` write it in the two forms. A flaw is put in
where it belongs: before signing, before logging, or into what was written.
"""

import base64
import copy
import datetime as dt
import enum
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID
from support.cluster.certificates import public_der
from support.registry.faults import flipped
from support.sigstore import key_signatures as keyed
from support.sigstore.key_signatures import BUNDLE, IN_TOTO, SIGNATURE_ANNOTATION, SigningKey, pae
from support.sigstore.rekor import Rekor, b64
from support.sigstore.services import Sigstore

CERTIFICATE_ANNOTATION = "dev.sigstore.cosign/certificate"
CHAIN_ANNOTATION = "dev.sigstore.cosign/chain"
BUNDLE_ANNOTATION = "dev.sigstore.cosign/bundle"


class Flaw(enum.Enum):
    """The one thing that is wrong."""

    NONE = "nothing"
    OTHER_SUBJECT = "a good signature of another image"
    OTHER_TYPE = "a good signature of something that is no image signature"
    FLIPPED_PAYLOAD = "signed bytes changed"
    FLIPPED_SIGNATURE = "signature changed"
    FLIPPED_BODY = "log entry changed"
    FLIPPED_ROOT = "root hash of the proof changed"
    FLIPPED_CHECKPOINT = "checkpoint changed"
    FLIPPED_PROMISE = "signed entry timestamp changed"
    FLIPPED_TIMESTAMP = "timestamp token changed"
    OTHER_ENTRY = "a good log entry of another signature (CVE-2026-22703)"
    NO_ENTRY = "no log entry"
    NO_TIME = "neither a signed time of the log nor a timestamp"
    OTHER_LOG = "logged in a log that is not trusted"
    OTHER_TSA = "stamped by an authority that is not trusted"
    OTHER_CA = "a certificate of an authority that is not trusted"
    OTHER_CT = "a certificate that another log has stamped"
    NO_STAMP = "a certificate that no log has stamped"
    EXPIRED = "signed an hour after the certificate was issued"
    NOT_FOR_CODE = "a certificate for a server"
    TWO_NAMES = "a certificate of two holders"


@dataclass(frozen=True)
class Person:
    """Who signs without a key: an address, or (with ://) a URI."""

    subject: str = "alice@example.test"
    issuer: str = "https://issuer.example.test"

    @property
    def name(self) -> x509.GeneralName:
        if "://" in self.subject:
            return x509.UniformResourceIdentifier(self.subject)
        return x509.RFC822Name(self.subject)


@dataclass(frozen=True)
class Service:
    """What is used to sign: `log` 0 for none, 1 or 2 for the version of Rekor; `stamped` by the TSA too."""

    sigstore: Sigstore
    log: int = 1
    stamped: bool = False

    def bundle(self, digest: str, by: SigningKey | Person, flaw: Flaw = Flaw.NONE) -> dict[str, Any]:
        """Return a bundle v0.3."""
        payload = keyed.statement_of(digest, _keyed(flaw))
        signed = pae(IN_TOTO, payload)
        key, certificate = self._signer(by, flaw)
        signature = key.sign(signed)
        written = _changed(signature, flaw, Flaw.FLIPPED_SIGNATURE)
        logged, covered = self._logged(signature, payload, flaw)
        body, kind = self._dsse(logged, covered, certificate or key)
        material: dict[str, Any] = {}
        if certificate:
            material["certificate"] = {"rawBytes": b64(certificate.public_bytes(serialization.Encoding.DER))}
        else:
            material["publicKey"] = {"hint": key.hint}
        if self.log and flaw is not Flaw.NO_ENTRY:
            material["tlogEntries"] = [self._spoiled(self._rekor(flaw).add(body, kind), flaw)]
        if self.stamped and flaw is not Flaw.NO_TIME:
            tsa = Sigstore().tsa if flaw is Flaw.OTHER_TSA else self.sigstore.tsa
            token = _changed(tsa.stamp(signature), flaw, Flaw.FLIPPED_TIMESTAMP)
            material["timestampVerificationData"] = {"rfc3161Timestamps": [{"signedTimestamp": b64(token)}]}
        envelope = {
            "payload": b64(_changed(payload, flaw, Flaw.FLIPPED_PAYLOAD)),
            "payloadType": IN_TOTO,
            "signatures": [{"sig": b64(written)}],
        }
        return {"mediaType": BUNDLE, "verificationMaterial": material, "dsseEnvelope": envelope}

    def legacy(self, payload: bytes, by: SigningKey | Person, flaw: Flaw = Flaw.NONE) -> tuple[bytes, dict[str, str]]:
        """Return a simplesigning payload and its annotations."""
        key, certificate = self._signer(by, flaw)
        signature = key.sign(payload)
        annotations = {SIGNATURE_ANNOTATION: b64(_changed(signature, flaw, Flaw.FLIPPED_SIGNATURE))}
        if certificate:
            fulcio = self.sigstore.fulcio
            annotations[CERTIFICATE_ANNOTATION] = _pem(certificate).decode()
            chain = (fulcio.intermediate.certificate, fulcio.root.certificate)
            annotations[CHAIN_ANNOTATION] = b"".join(map(_pem, chain)).decode()
        if self.log and flaw is not Flaw.NO_ENTRY:
            logged, covered = self._logged(signature, payload, flaw)
            verifier = _pem(certificate) if certificate else key.public_pem
            body = _json(
                apiVersion="0.0.1",
                kind="hashedrekord",
                spec={
                    "data": {"hash": {"algorithm": "sha256", "value": hashlib.sha256(covered).hexdigest()}},
                    "signature": {"content": b64(logged), "publicKey": {"content": b64(verifier)}},
                },
            )
            entry = self._spoiled(self._rekor(flaw).add(body, "hashedrekord"), flaw)
            annotations[BUNDLE_ANNOTATION] = json.dumps(_rekor_bundle(entry))
        return _changed(payload, flaw, Flaw.FLIPPED_PAYLOAD), annotations

    def _signer(self, by: SigningKey | Person, flaw: Flaw) -> tuple[SigningKey, x509.Certificate | None]:
        if isinstance(by, SigningKey):
            return by, None
        key = SigningKey()
        fulcio = (Sigstore() if flaw is Flaw.OTHER_CA else self.sigstore).fulcio
        names = [by.name, x509.RFC822Name("eve@example.test")] if flaw is Flaw.TWO_NAMES else [by.name]
        now = dt.datetime.now(dt.UTC)
        return key, fulcio.issue(
            key.private.public_key(),
            names,
            by.issuer,
            at=now - dt.timedelta(hours=1) if flaw is Flaw.EXPIRED else now,
            purpose=ExtendedKeyUsageOID.SERVER_AUTH if flaw is Flaw.NOT_FOR_CODE else ExtendedKeyUsageOID.CODE_SIGNING,
            log_key=SigningKey().private if flaw is Flaw.OTHER_CT else self.sigstore.fulcio.log_key,
            stamped=flaw is not Flaw.NO_STAMP,
        )

    def _rekor(self, flaw: Flaw) -> Rekor:
        sigstore = Sigstore() if flaw is Flaw.OTHER_LOG else self.sigstore
        return sigstore.rekor if self.log == 1 else sigstore.rekor2

    def _logged(self, signature: bytes, payload: bytes, flaw: Flaw) -> tuple[bytes, bytes]:
        if flaw is not Flaw.OTHER_ENTRY:
            return signature, payload
        other = b"another payload"
        return SigningKey().sign(other), other

    def _dsse(self, signature: bytes, payload: bytes, verifier: x509.Certificate | SigningKey) -> tuple[bytes, str]:
        if self.log == 2:
            der = public_der(verifier.private.public_key()) if isinstance(verifier, SigningKey) else _der(verifier)
            kind = "publicKey" if isinstance(verifier, SigningKey) else "x509Certificate"
            digest = hashlib.sha256(pae(IN_TOTO, payload)).digest()
            spec: dict[str, Any] = {
                "data": {"algorithm": "SHA2_256", "digest": b64(digest)},
                "signature": {
                    "content": b64(signature),
                    "verifier": {"keyDetails": "PKIX_ECDSA_P256_SHA_256", kind: {"rawBytes": b64(der)}},
                },
            }
            return _json(apiVersion="0.0.2", kind="hashedrekord", spec={"hashedRekordV002": spec}), "hashedrekord"
        pem = verifier.public_pem if isinstance(verifier, SigningKey) else _pem(verifier)
        spec = {
            "envelopeHash": {"algorithm": "sha256", "value": hashlib.sha256(b"envelope").hexdigest()},
            "payloadHash": {"algorithm": "sha256", "value": hashlib.sha256(payload).hexdigest()},
            "signatures": [{"signature": b64(signature), "verifier": b64(pem)}],
        }
        return _json(apiVersion="0.0.1", kind="dsse", spec=spec), "dsse"

    def _spoiled(self, entry: dict[str, Any], flaw: Flaw) -> dict[str, Any]:
        entry = copy.deepcopy(entry)
        proof = entry["inclusionProof"]
        if flaw is Flaw.FLIPPED_BODY:
            # Still JSON: somebody who changes an entry does not break it.
            entry["canonicalizedBody"] = b64(base64.b64decode(entry["canonicalizedBody"]).replace(b'{"', b'{ "', 1))
        elif flaw is Flaw.FLIPPED_ROOT:
            proof["rootHash"] = b64(flipped(base64.b64decode(proof["rootHash"])))
        elif flaw is Flaw.FLIPPED_CHECKPOINT:
            head, space, signature = proof["checkpoint"]["envelope"].rstrip("\n").rpartition(" ")
            changed = b64(flipped(base64.b64decode(signature)))
            proof["checkpoint"]["envelope"] = f"{head}{space}{changed}\n"
        elif flaw is Flaw.FLIPPED_PROMISE and "inclusionPromise" in entry:
            promise = entry["inclusionPromise"]
            promise["signedEntryTimestamp"] = b64(flipped(base64.b64decode(promise["signedEntryTimestamp"])))
        elif flaw is Flaw.NO_TIME:
            entry.pop("inclusionPromise", None)
        return entry


def _rekor_bundle(entry: dict[str, Any]) -> dict[str, Any]:
    return {
        "SignedEntryTimestamp": entry.get("inclusionPromise", {}).get("signedEntryTimestamp", ""),
        "Payload": {
            "body": entry["canonicalizedBody"],
            "integratedTime": int(entry["integratedTime"]),
            "logIndex": int(entry["logIndex"]),
            "logID": base64.b64decode(entry["logId"]["keyId"]).hex(),
        },
    }


def _keyed(flaw: Flaw) -> keyed.Flaw:
    return {Flaw.OTHER_SUBJECT: keyed.Flaw.OTHER_SUBJECT, Flaw.OTHER_TYPE: keyed.Flaw.OTHER_TYPE}.get(
        flaw, keyed.Flaw.NONE
    )


def _changed(data: bytes, flaw: Flaw, mine: Flaw, how: Callable[[bytes], bytes] = flipped) -> bytes:
    return how(data) if flaw is mine else data


def _json(**fields: object) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def _der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.DER)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
