"""A token server for the real distribution: signed tokens by its specification, for one user and one refresh token."""

import base64
import json
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils
from support.cluster.certificates import Authority
from support.registry.auth import SERVICE, TOKEN_PATH, Auth
from support.registry.faults import Answer, Fault
from support.registry.wire import Handler, Request, Server

ISSUER = "gkm-testbed"
LIFE_SECONDS = 300


@dataclass
class TokenServer:
    """A running token server, plain HTTP, and what distribution must be told of it."""

    auth: Auth
    roots: Path
    host: str = ""
    requests: list[Request] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)
    _authority: Authority = field(default_factory=Authority.create)

    @classmethod
    @contextmanager
    def start(cls, auth: Auth, directory: Path) -> Iterator["TokenServer"]:
        directory.mkdir(parents=True, exist_ok=True)
        tokens = cls(auth, directory / "token-roots.pem")
        tokens.roots.write_bytes(tokens._authority.pem)
        server = Server(("127.0.0.1", 0), type("BoundHandler", (Handler,), {"service": tokens}))
        tokens.host = f"127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="tokens", daemon=True)
        thread.start()
        try:
            yield tokens
        finally:
            tokens.stopping.set()
            server.shutdown()
            server.server_close()
            thread.join()

    @property
    def section(self) -> dict[str, str]:
        """The `token` section of distribution's configuration."""
        realm = f"http://{self.host}{TOKEN_PATH}"
        return {"realm": realm, "service": SERVICE, "issuer": ISSUER, "rootcertbundle": str(self.roots)}

    def answer(self, request: Request) -> Answer:
        self.requests.append(request)
        if self.auth.issue(request) is None:
            return Answer(401, {}, b"{}")
        asked = request.body.decode() if request.method == "POST" else request.query
        scopes = urllib.parse.parse_qs(asked).get("scope", [])
        body = {"access_token": self._signed(scopes), "expires_in": LIFE_SECONDS}
        return Answer(200, {"Content-Type": "application/json"}, json.dumps(body).encode())

    def spoil(self, request: Request) -> Fault | None:  # noqa: ARG002 -- it never misbehaves
        return None

    def _signed(self, scopes: list[str]) -> str:
        """Return a JSON Web Token for what was asked, signed with ES256 by a certificate that it brings along."""
        issued = self._authority.server(["tokens.example"])
        certificate = x509.load_pem_x509_certificate(issued.certificate)
        key = serialization.load_pem_private_key(issued.key, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        chain = [base64.b64encode(certificate.public_bytes(serialization.Encoding.DER)).decode()]
        now = int(time.time())
        parts = [scope.split(":") for scope in scopes]
        access = [{"type": kind, "name": name, "actions": actions.split(",")} for kind, name, actions in parts]
        times = {"exp": now + LIFE_SECONDS, "nbf": now - 10, "iat": now}
        claims = {"iss": ISSUER, "sub": self.auth.user, "aud": SERVICE, "jti": str(now), "access": access, **times}
        signed = f"{_coded({'typ': 'JWT', 'alg': 'ES256', 'x5c': chain})}.{_coded(claims)}"
        r, s = utils.decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{_base64url(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def _coded(value: object) -> str:
    return _base64url(json.dumps(value).encode())


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
