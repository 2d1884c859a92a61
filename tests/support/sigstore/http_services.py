"""The double of Sigstore over HTTP, for cosign to sign with: Fulcio and Rekor 1 as clients of their APIs see them.

Tokens are believed: `token` writes what an OpenID provider would have signed.
"""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from support.cluster.certificates import public_pem
from support.host.waiting import scaled
from support.sigstore.keyless import Person
from support.sigstore.services import Sigstore


def token(person: Person) -> str:
    """Return an identity token of somebody with an address."""
    claims = {
        "iss": person.issuer,
        "sub": person.subject,
        "aud": "sigstore",
        "exp": 4102444800,
        "email": person.subject,
        "email_verified": True,
    }
    parts = [json.dumps(part).encode() for part in ({"alg": "RS256"}, claims)]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (*parts, b"signature"))


@dataclass(frozen=True)
class SigstoreServer:
    """A running Sigstore, plain HTTP on a loopback port."""

    sigstore: Sigstore
    url: str
    fixed: dict[str, tuple[int, bytes]]
    """Paths whose answer is this from now on, status and body, whatever is asked."""
    asked: list[str]
    """The paths of all that was posted."""

    @classmethod
    @contextmanager
    def start(cls, sigstore: Sigstore) -> Iterator["SigstoreServer"]:
        """Serve until the block ends."""
        fixed: dict[str, tuple[int, bytes]] = {}
        asked: list[str] = []
        shared = {"sigstore": sigstore, "fixed": fixed, "asked": asked, "lock": threading.Lock(), "entries": {}}
        handler = type("_Handler", (_Handler,), shared)
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield cls(sigstore, f"http://127.0.0.1:{server.server_address[1]}", fixed, asked)
        finally:
            server.shutdown()
            server.server_close()
            thread.join(scaled(10))

    def environment(self, directory: Path) -> dict[str, str]:
        """Return the variables by which cosign without a trusted root knows this Sigstore."""
        fulcio = self.sigstore.fulcio
        rekor = self.sigstore.rekor.key.public_key()
        if not isinstance(rekor, ec.EllipticCurvePublicKey):
            raise TypeError("the first Rekor signs with ECDSA")
        files = {
            "SIGSTORE_ROOT_FILE": b"".join(part.pem for part in (fulcio.intermediate, fulcio.root)),
            "SIGSTORE_CT_LOG_PUBLIC_KEY_FILE": public_pem(fulcio.log_key.public_key()),
            "SIGSTORE_REKOR_PUBLIC_KEY": public_pem(rekor),
        }
        for name, content in files.items():
            (directory / name).write_bytes(content)
        return {name: str(directory / name) for name in files}


class _Handler(BaseHTTPRequestHandler):
    """Answers the requests that signing makes, and those that ask for an entry."""

    sigstore: Sigstore
    fixed: dict[str, tuple[int, bytes]]
    asked: list[str]
    lock: threading.Lock
    entries: dict[str, dict[str, Any]]
    """What was logged, by its id."""
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(self.path)
        if self.path in self.fixed:
            self._send(*self.fixed[self.path])
        elif self.path.endswith("/signingCert"):
            self._issue(body)
        elif self.path == "/api/v1/log/entries":
            self._log(body)
        elif self.path == "/api/v1/log/entries/retrieve":
            self._retrieve(body)
        else:
            self._send(404, b"{}")

    def do_GET(self) -> None:
        uuid = self.path.removeprefix("/api/v1/log/entries/")
        with self.lock:
            found = self.entries.get(uuid)
        self._send(200 if found else 404, json.dumps({uuid: found} if found else {}).encode())

    def _issue(self, asked: dict[str, Any]) -> None:
        part = self.headers["Authorization"].split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        second = self.path.startswith("/api/v2/")
        key = _key_in(asked)
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise TypeError("cosign makes ECDSA keys")
        fulcio = self.sigstore.fulcio
        leaf = fulcio.issue(key, [Person(claims["email"]).name], claims["iss"])
        chain = [leaf.public_bytes(serialization.Encoding.PEM), fulcio.intermediate.pem, fulcio.root.pem]
        if second:
            certificates = {"chain": {"certificates": [each.decode() for each in chain]}}
            self._send(200, json.dumps({"signedCertificateEmbeddedSct": certificates}).encode())
        else:
            self._send(201, b"".join(chain))

    def _log(self, proposed: dict[str, Any]) -> None:
        body, kind = _canonical(proposed)
        uuid = _sha256(b"\0" + body)
        location = {"Location": f"/api/v1/log/entries/{uuid}"}
        with self.lock:
            if uuid in self.entries:
                self._send(409, b"{}", location)
                return
            self.entries[uuid] = answer = _answer(self.sigstore.rekor.add(body, kind))
        self._send(201, json.dumps({uuid: answer}).encode(), {**location, "ETag": uuid})

    def _retrieve(self, asked: dict[str, Any]) -> None:
        uuids = [_sha256(b"\0" + _canonical(proposed)[0]) for proposed in asked["entries"]]
        with self.lock:
            found = [{uuid: self.entries[uuid]} for uuid in uuids if uuid in self.entries]
        self._send(200, json.dumps(found).encode())

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        try:
            self.end_headers()
            self.wfile.write(body)
        except ConnectionError:
            # A client may have heard enough.
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- http.server's own name
        """Say nothing."""


def _key_in(asked: dict[str, Any]) -> object:
    """Return the key in a request of Fulcio's first or second API, which takes a request for a certificate too."""
    if asked.get("certificateSigningRequest"):
        request = x509.load_pem_x509_csr(base64.b64decode(asked["certificateSigningRequest"]))
        if not request.is_signature_valid:
            raise ValueError("the request does not prove that its sender has the key")
        return request.public_key()
    if asked.get("publicKeyRequest"):
        raw = asked["publicKeyRequest"]["publicKey"]["content"].encode()
    else:
        raw = base64.b64decode(asked["publicKey"]["content"])
    load = serialization.load_pem_public_key if b"-----BEGIN" in raw else serialization.load_der_public_key
    return load(raw)


def _canonical(proposed: dict[str, Any]) -> tuple[bytes, str]:
    """Return what Rekor stores of a proposed entry, and its kind."""
    kind, spec = proposed["kind"], proposed["spec"]
    if kind == "dsse":
        content = spec["proposedContent"]
        envelope = json.loads(content["envelope"])
        payload = base64.b64decode(envelope["payload"])
        spec = {
            "envelopeHash": {"algorithm": "sha256", "value": _sha256(content["envelope"].encode())},
            "payloadHash": {"algorithm": "sha256", "value": _sha256(payload)},
            "signatures": [{"signature": envelope["signatures"][0]["sig"], "verifier": content["verifiers"][0]}],
        }
    stored = {"apiVersion": "0.0.1", "kind": kind, "spec": spec}
    return json.dumps(stored, sort_keys=True, separators=(",", ":")).encode(), kind


def _answer(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry as Rekor's API shows it."""
    proof = entry["inclusionProof"]
    return {
        "body": entry["canonicalizedBody"],
        "integratedTime": int(entry["integratedTime"]),
        "logID": base64.b64decode(entry["logId"]["keyId"]).hex(),
        "logIndex": int(entry["logIndex"]),
        "verification": {
            "signedEntryTimestamp": entry["inclusionPromise"]["signedEntryTimestamp"],
            "inclusionProof": {
                "logIndex": int(proof["logIndex"]),
                "treeSize": int(proof["treeSize"]),
                "rootHash": base64.b64decode(proof["rootHash"]).hex(),
                "hashes": [base64.b64decode(each).hex() for each in proof["hashes"]],
                "checkpoint": proof["checkpoint"]["envelope"],
            },
        },
    }


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
