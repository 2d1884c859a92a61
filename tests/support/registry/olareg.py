"""The real olareg, a registry with the referrers API: `with Olareg.start(directory) as olareg:`."""

import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.host import ports
from support.host.processes import Process
from support.peers import build as peers
from support.registry.push import Target


@dataclass(frozen=True)
class Olareg:
    """A running olareg, plain HTTP."""

    host: str

    @classmethod
    @contextmanager
    def start(cls, directory: Path, address: str = "127.0.0.1") -> Iterator["Olareg"]:
        """Serve what is below `directory`/data, on a free port of `address` only."""
        data = directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        port = ports.free()
        # Without --addr it listens on every interface.
        arguments = ["serve", "--addr", address, "--port", str(port), "--dir", str(data)]
        process = Process.start("olareg", [peers.binary("olareg"), *arguments], directory / "olareg.log")
        try:
            olareg = cls(f"{address}:{port}")
            process.ready(olareg._answers, "/v2/ answered", 15)
            yield olareg
        finally:
            process.stop()

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    def _answers(self) -> bool:
        try:
            return Target(self.host, "").request("GET", "/v2/")[0] == http.HTTPStatus.OK
        except OSError:
            return False
