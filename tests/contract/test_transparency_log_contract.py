"""Rekor: an entry is about what was added and verifies; a failure is a GKMError and nothing else."""

import base64
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from gkm.api.errors import GKMError, Reason
from gkm.images.registries.transport import TransportLimits
from gkm.images.signatures import entry_body, transparency, trust_material
from gkm.images.signatures.bundles import LogEntry
from gkm.images.signatures.certificates import Untrusted
from gkm.images.signatures.rekor import ENTRIES, Rekor
from gkm.images.signatures.signature_formats import Signature, SignatureForm
from gkm.images.signatures.sigstore_services import SigstoreService
from support.images.signers import private_key
from support.sigstore.http_services import SigstoreServer
from support.sigstore.services import Sigstore

LIMITS = TransportLimits(connect=0.5, stall=0.3, request=1.0, pause=0.01)
DATA = b"what is signed"


@pytest.fixture
def server() -> Iterator[SigstoreServer]:
    with SigstoreServer.start(Sigstore()) as server:
        yield server


def log_at(url: str) -> Rekor:
    return Rekor(SigstoreService("Rekor", url, limits=LIMITS))


def check(entry: LogEntry, signature: Signature, verifier: bytes, server: SigstoreServer, directory: Path) -> None:
    """Check an entry as verification does: the log's promise, and that the body is about this signature."""
    root = trust_material.root(str(server.sigstore.write_trusted_root(directory))).trusted
    assert transparency.check(entry, root)
    entry_body.check(entry, signature, verifier)


def test_an_added_signature_has_an_entry_that_verifies(server: SigstoreServer, tmp_path: Path) -> None:
    key = private_key()
    signature = key.sign(DATA)
    entry = log_at(server.url).add_hashedrekord(DATA, signature, key.public.pem)
    check(entry, Signature(SignatureForm.LEGACY, DATA, signature), key.public.der, server, tmp_path)
    with pytest.raises(Untrusted, match="another signature"):
        entry_body.check(entry, Signature(SignatureForm.LEGACY, DATA, key.sign(DATA)), key.public.der)


def test_an_added_envelope_has_an_entry_that_verifies(server: SigstoreServer, tmp_path: Path) -> None:
    key = private_key()
    payload_type = "application/vnd.in-toto+json"
    signed = b"DSSEv1 %d %s %d %s" % (len(payload_type), payload_type.encode(), len(DATA), DATA)
    signature = key.sign(signed)
    envelope = msgspec.json.encode(
        {
            "payload": base64.b64encode(DATA).decode(),
            "payloadType": payload_type,
            "signatures": [{"sig": base64.b64encode(signature).decode()}],
        }
    )
    entry = log_at(server.url).add_dsse(envelope, key.public.pem)
    added = Signature(SignatureForm.BUNDLE, signed, signature, payload=DATA)
    check(entry, added, key.public.der, server, tmp_path)


def test_an_entry_that_is_added_again_comes_back(server: SigstoreServer) -> None:
    key = private_key()
    signature = key.sign(DATA)
    log = log_at(server.url)
    first = log.add_hashedrekord(DATA, signature, key.public.pem)
    assert log.add_hashedrekord(DATA, signature, key.public.pem).log_index == first.log_index


@pytest.mark.parametrize(
    "answer", [(500, b""), (201, b""), (201, b"[]"), (201, b'{"a": {}}'), (409, b""), (404, b"{}")]
)
def test_an_answer_without_an_entry_is_an_error(server: SigstoreServer, answer: tuple[int, bytes]) -> None:
    server.fixed[ENTRIES] = answer
    key = private_key()
    with pytest.raises(GKMError) as caught:
        log_at(server.url).add_hashedrekord(DATA, key.sign(DATA), key.public.pem)
    assert caught.value.reason in (Reason.REGISTRY_UNAVAILABLE, Reason.NOT_ALLOWED, Reason.METADATA_INVALID)


def test_a_log_that_does_not_answer_is_unavailable() -> None:
    key = private_key()
    with pytest.raises(GKMError) as caught:
        log_at("http://127.0.0.1:9").add_hashedrekord(DATA, key.sign(DATA), key.public.pem)
    assert caught.value.reason is Reason.REGISTRY_UNAVAILABLE
