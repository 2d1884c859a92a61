"""A small real OCI registry in this process: `with Registry.start() as registry:`; it misbehaves when asked to."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from support.cluster.certificates import Authority
from support.registry.answers import refusal
from support.registry.auth import TOKEN_PATH, Auth
from support.registry.faults import Answer, Fault
from support.registry.routes import Routes, repository_of
from support.registry.store import Store
from support.registry.wire import Handler, Request, Server


@dataclass
class Registry:
    """A running registry.

    `store` may be filled directly (it checks nothing), or over HTTP with support.registry.push,
    which also serves olareg.
    """

    store: Store
    routes: Routes
    auth: Auth | None
    host: str = ""
    """host:port, as it stands in an image reference."""
    ca_file: Path | None = None
    """With TLS: the authority a client must trust."""
    requests: list[Request] = field(default_factory=list)
    """Every request so far, without bodies, token requests included."""
    stopping: threading.Event = field(default_factory=threading.Event)
    _faults: dict[Fault, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    @contextmanager
    def start(
        cls, *, referrers: bool = True, auth: Auth | None = None, tls: Path | None = None
    ) -> Iterator["Registry"]:
        """Serve on a free loopback port; `tls` is a directory for a certificate, and makes it https."""
        store = Store()
        registry = cls(store, Routes(store, with_referrers=referrers), auth)
        server = Server(("127.0.0.1", 0), type("BoundHandler", (Handler,), {"service": registry}))
        registry.host = f"127.0.0.1:{server.server_port}"
        if tls:
            authority = Authority.create()
            registry.ca_file = tls / "registry-ca.crt"
            certificate, key = authority.server(["127.0.0.1", "localhost"]).write(tls, "registry")
            registry.ca_file.write_bytes(authority.pem)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            # The handshake belongs to the connection's thread, not to the one that accepts.
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="registry", daemon=True)
        thread.start()
        try:
            yield registry
        finally:
            registry.stopping.set()
            server.shutdown()
            server.server_close()
            thread.join()

    @property
    def url(self) -> str:
        return f"{'https' if self.ca_file else 'http'}://{self.host}"

    def misbehave(self, *faults: Fault) -> None:
        """Spoil answers from now on; of several faults that match a request, the first one counts."""
        with self._lock:
            self._faults.update(dict.fromkeys(faults, 0))

    def behave(self) -> None:
        """Forget all faults."""
        with self._lock:
            self._faults.clear()

    def seen(self, method: str, path: str) -> list[Request]:
        """Return the requests whose path contains `path`."""
        with self._lock:
            return [request for request in self.requests if request.method == method and path in request.path]

    def answer(self, request: Request) -> Answer:
        """Record a request and return the proper answer to it."""
        with self._lock:
            self.requests.append(Request(request.method, request.path, request.headers))
        if self.auth is None:
            return self.routes.answer(request)
        if request.plain_path == TOKEN_PATH:
            token = self.auth.issue(request)
            if token is None:
                return refusal(401, "UNAUTHORIZED", "wrong user or password")
            return Answer(200, {"Content-Type": "application/json"}, f'{{"token":"{token}","expires_in":300}}'.encode())
        repository = repository_of(request.plain_path)
        if not self.auth.admits(request.headers, repository):
            action = "pull" if request.method in ("GET", "HEAD") else "pull,push"
            challenge = self.auth.challenge(self.url, repository, action)
            return refusal(401, "UNAUTHORIZED", "authentication required", WWW_Authenticate=challenge)
        return self.routes.answer(request)

    def spoil(self, request: Request) -> Fault | None:
        """Return the fault this request meets, counting it."""
        with self._lock:
            for fault, met in self._faults.items():
                if fault.matches(request.method, request.path) and met < fault.skip + fault.times:
                    self._faults[fault] = met + 1
                    return fault if met >= fault.skip else None
        return None
