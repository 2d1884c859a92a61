"""The real distribution, a registry without the referrers API: `with Distribution.start(directory) as running:`."""

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.host import ports
from support.host.processes import Process
from support.peers import build as peers
from support.registry.push import Target

USER, PASSWORD = "robot", "s3cret-passw0rd"
_HTPASSWD = f"{USER}:$2b$04$HfMUHBRIhJLQIjU5eEiVMOhKmsEZbPuzKlqLbGYkwgA0rN2FIBzmC\n"
"""The password by bcrypt, the only way in which distribution reads it."""
_QUIET = {"OTEL_TRACES_EXPORTER": "none"}
"""Without it, it looks for a collector of traces."""


@dataclass(frozen=True)
class Distribution:
    """A running distribution, plain HTTP."""

    host: str
    data: Path

    @classmethod
    @contextmanager
    def start(
        cls, directory: Path, *, htpasswd: bool = False, token: Mapping[str, str] | None = None, proxy: str = ""
    ) -> Iterator["Distribution"]:
        """Serve what is below `directory`/data on a free loopback port.

        `htpasswd` asks for USER and PASSWORD by Basic; `token` is the section of that name: who hands out tokens.
        `proxy` is the address of a registry: a pull-through cache of that one, which accepts no push.
        """
        directory.mkdir(parents=True, exist_ok=True)
        host = f"127.0.0.1:{ports.free()}"
        auth: dict[str, Any] = {}
        if htpasswd:
            path = directory / "htpasswd"
            path.write_text(_HTPASSWD)
            auth = {"htpasswd": {"realm": "testbed", "path": str(path)}}
        if token:
            auth = {"token": dict(token)}
        config = directory / "config.yaml"
        config.write_text(_config(host, directory / "data", auth, proxy))
        arguments: list[str | Path] = [peers.binary("distribution"), "serve", config]
        process = Process.start("distribution", arguments, directory / "distribution.log", _QUIET)
        try:
            distribution = cls(host, directory / "data")
            process.ready(distribution._answers, "/v2/ answered", 15)
            yield distribution
        finally:
            process.stop()

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    def has_blob(self, repository: str, digest: str) -> bool:
        """Return whether a blob is stored, and linked to its repository."""
        storage = self.data / "docker/registry/v2/repositories"
        return (storage / repository / "_layers/sha256" / digest.removeprefix("sha256:") / "link").exists()

    def _answers(self) -> bool:
        try:
            status = Target(self.host, "").request("GET", "/v2/")[0]
        except OSError:
            return False
        return status in (http.HTTPStatus.OK, http.HTTPStatus.UNAUTHORIZED)


def _config(host: str, data: Path, auth: Mapping[str, Any], proxy: str) -> str:
    """Return the configuration; JSON is YAML too."""
    config = {
        "version": "0.1",
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {
            "filesystem": {"rootdirectory": str(data)},
            "delete": {"enabled": True},
            "maintenance": {"uploadpurging": {"enabled": False}},
        },
        "http": {"addr": host, "secret": "of the testbed"},
        **({"auth": auth} if auth else {}),
        **({"proxy": {"remoteurl": proxy}} if proxy else {}),
    }
    return json.dumps(config, indent=1)
