"""A TUF repository with a trusted root, signed with keys of its own and served on a loopback port."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from securesystemslib.signer import CryptoSigner
from support.host.waiting import scaled
from tuf.api.metadata import Metadata, MetaFile, Root, Snapshot, TargetFile, Targets, Timestamp

TARGET = "trusted_root.json"


@dataclass
class TufRepository:
    """The signed files by their path, and the clock of their expiry; `away` closes every connection."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    away: bool = False
    _signer: CryptoSigner = field(default_factory=CryptoSigner.generate_ecdsa)
    _version: int = 0

    @property
    def root(self) -> bytes:
        """Return the first root."""
        return self.files["1.root.json"]

    def publish(self, target: bytes, days: float = 7, signer: CryptoSigner | None = None) -> None:
        """Sign the next version, which expires after `days`; another `signer` than that of the root is a forger."""
        self._version += 1
        expires = (datetime.now(UTC) + timedelta(days=days)).replace(microsecond=0)
        key, version = self._signer.public_key, self._version
        root = Root(version=1, expires=datetime.now(UTC).replace(microsecond=0) + timedelta(days=365))
        for role in ("root", "timestamp", "snapshot", "targets"):
            root.add_key(key, role)
        file = TargetFile.from_data(TARGET, target, ["sha256"])
        targets = Targets(version=version, expires=expires, targets={TARGET: file})
        snapshot = Snapshot(version=version, expires=expires, meta={"targets.json": MetaFile(version)})
        timestamp = Timestamp(version=version, expires=expires, snapshot_meta=MetaFile(version))
        for name, signed in (
            ("1.root.json", root),
            (f"{version}.targets.json", targets),
            (f"{version}.snapshot.json", snapshot),
            ("timestamp.json", timestamp),
        ):
            if name == "1.root.json" and name in self.files:
                continue
            self.files[name] = _signed(signed, signer or self._signer)
        self.files[f"targets/{file.hashes['sha256']}.{TARGET}"] = target


def _signed(value: Any, signer: CryptoSigner) -> bytes:  # noqa: ANN401 -- one of TUF's four roles
    metadata: Metadata[Any] = Metadata(value)
    metadata.sign(signer)
    return metadata.to_bytes()


@contextmanager
def tuf_repository(target: bytes) -> Iterator[TufRepository]:
    """Serve a repository with this trusted root."""
    repository = TufRepository()
    repository.publish(target)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.lstrip("/")
            repository.asked.append(path)
            if repository.away:
                self.close_connection = True
                return
            found = repository.files.get(path)
            self.send_response(200 if found is not None else 404)
            self.send_header("Content-Length", str(len(found or b"")))
            self.end_headers()
            self.wfile.write(found or b"")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        repository.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield repository
    finally:
        server.shutdown()
        server.server_close()
        thread.join(scaled(10))
