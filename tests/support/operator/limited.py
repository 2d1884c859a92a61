"""Processes of the operator within the memory limit that their containers have."""

import http.client
import json
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml
from support.host import pages, ports
from support.host.memory import MemoryGroup, memory_of
from support.host.processes import Process
from support.host.waiting import scaled, until
from support.operator.deployment import Shelf, manifests, operator_command
from support.operator.issued import issue
from support.operator.reviews import an_object, review

MIB = 1 << 20
SECONDS = scaled(60)
GONE = (OSError, http.client.HTTPException)
ARENAS = {"MALLOC_ARENA_MAX": "2"}
"""As in Dockerfile.operator."""


def container_limit(deployment: str) -> int:
    """Return the memory limit in bytes of the container that ships in a Deployment."""
    (found,) = (m for m in manifests() if m["kind"] == "Deployment" and m["metadata"]["name"] == deployment)
    (only,) = found["spec"]["template"]["spec"]["containers"]
    text: str = only["resources"]["limits"]["memory"]
    assert text.endswith("Mi")
    return int(text.removesuffix("Mi")) * MIB


class Admission:
    """The process, as it ships."""

    def __init__(self, process: Process, port: int, context: ssl.SSLContext) -> None:
        self.process = process
        self.port = port
        self.context = context

    def ask(self, image: str, namespace: str, padding: int = 0) -> dict[str, object]:
        """Return the response to a review of a cache; like an API server, retry on 503.

        `padding` is the number of bytes added to the review.
        """
        body = json.dumps(review(object=an_object(image), namespace=namespace)).encode() + b" " * padding
        return until(lambda: self._try(body), "a response to a review", 60)

    def _try(self, body: bytes) -> dict[str, object] | None:
        """Return the response, or None when the server had no place for this client."""
        client = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=SECONDS, context=self.context)
        try:
            client.request("POST", "/validate?timeout=10s", body, {"Content-Type": "application/json"})
            answer = client.getresponse()
            text = answer.read()
        except GONE:
            assert self.process.popen.poll() is None, self.process.tail()
            return None
        finally:
            client.close()
        if answer.status == http.HTTPStatus.SERVICE_UNAVAILABLE:
            return None
        assert answer.status == http.HTTPStatus.OK, text
        response: dict[str, object] = json.loads(text)["response"]
        return response

    def peak_bytes(self) -> int:
        return memory_of(self.process.pid, "VmHWM")


@contextmanager
def admission(directory: Path, shelves: Sequence[Shelf]) -> Iterator[Admission]:
    """Serve admission until the block ends; it trusts the keys of all shelves, and must live below its limit."""
    directory.mkdir(exist_ok=True)
    issued = issue(directory / "tls", ["127.0.0.1"])
    config = directory / "config.yaml"
    config.write_text(_config(shelves), encoding="utf-8")
    port = ports.free()
    words = operator_command(
        "admission",
        f"--config={config}",
        f"--listen=127.0.0.1:{port}",
        "--health=127.0.0.1:0",
        f"--tls-cert={issued.certificate}",
        f"--tls-key={issued.key}",
        "--budget=8",
    )
    with MemoryGroup.of(container_limit("gkm-admission")) as group:
        process = Process.start("admission", group.command(words), directory / "log", ARENAS)
        try:
            pages.wait_until_ready(process, besides=port)
            context = ssl.create_default_context(cadata=issued.ca_bundle.decode())
            yield Admission(process, port, context)
            assert process.popen.poll() is None, process.tail()
            assert memory_of(process.pid, "VmHWM") < group.limit
        finally:
            process.stop()


def _config(shelves: Sequence[Shelf]) -> str:
    keys = [each.key.public_pem.decode() for each in shelves]
    hosts = {host: {"plainHTTP": True} for each in shelves for host in (each.registry.host, each.closed_port)}
    verification = {"mode": "enforce", "policies": [{"images": ["*"], "keys": keys}]}
    return yaml.safe_dump({"verification": verification, "registries": {"hosts": hosts}})
