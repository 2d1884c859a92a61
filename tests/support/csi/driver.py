"""The real gkm-csi process in a mount namespace of its own, and a client on its real socket."""

import json
import queue
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import grpc
from gkm_csi.proto import csi_pb2, registration_pb2
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from support.csi.namespaces import MountNamespace
from support.csi.nodes import NODE, NodeFiles, publish_message
from support.host.waiting import scaled, until

_SERVICES: tuple[ServiceDescriptor, ...] = (
    *csi_pb2.DESCRIPTOR.services_by_name.values(),
    *registration_pb2.DESCRIPTOR.services_by_name.values(),
)
DEADLINE_SECONDS = 60.0
DEADLINE = scaled(DEADLINE_SECONDS)
MAIN = ("-m", "gkm_csi.main")
_CREDENTIALS = struct.Struct("3i")
"""struct ucred of the process that called listen(2): pid, uid and gid (unix(7))."""


class Client:
    """Calls by their names in the protocol, on one socket."""

    def __init__(self, socket: Path) -> None:
        # Without a pool of its own, two clients of one path would share a connection that has gone with a process.
        self._channel = grpc.insecure_channel(f"unix:{socket}", options=(("grpc.use_local_subchannel_pool", 1),))
        self._methods = {
            method.name: self._channel.unary_unary(
                f"/{service.full_name}/{method.name}",
                request_serializer=GetMessageClass(method.input_type).SerializeToString,
                response_deserializer=GetMessageClass(method.output_type).FromString,
            )
            for service in _SERVICES
            for method in service.methods
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def call(self, name: str, message: Message) -> Any:  # noqa: ANN401 -- the answer that belongs to the call
        return self._methods[name](message, timeout=DEADLINE)

    def publish(self, volume: str, target: Path, attributes: dict[str, str], **pod: str) -> None:
        self.call("NodePublishVolume", publish_message(volume, target, attributes, **pod))

    def unpublish(self, volume: str, target: Path) -> None:
        self.call("NodeUnpublishVolume", csi_pb2.NodeUnpublishVolumeRequest(volume_id=volume, target_path=str(target)))

    def unpublish_as_kubelet(self, volume: str, target: Path) -> list[str]:
        """Repeat unpublish while the driver asks for it; return its messages before the success.

        Raises:
            grpc.RpcError: it failed for another reason.
        """
        said: list[str] = []

        def gone() -> bool:
            try:
                self.unpublish(volume, target)
            except grpc.RpcError as error:
                if error.code().name != "ABORTED":
                    raise
                said.append(str(error.details()))
                return False
            return True

        until(gone, "the volume to go")
        return said

    def refused(self, name: str, message: Message) -> tuple[str, str]:
        """Return code and message of a call that must fail."""
        try:
            self.call(name, message)
        except grpc.RpcError as error:
            return error.code().name, str(error.details())
        raise AssertionError(f"{name} was answered OK")

    def raw_refused(self, path: str, body: bytes) -> str:
        """Return the code of a call with raw bytes that must fail."""
        method = self._channel.unary_unary(path, request_serializer=bytes, response_deserializer=bytes)
        try:
            method(body, timeout=DEADLINE)
        except grpc.RpcError as error:
            return str(error.code().name)
        raise AssertionError(f"{path} was answered OK")


@dataclass
class Driver:
    """A running process and its log."""

    process: subprocess.Popen[str]
    files: NodeFiles
    events: "queue.Queue[dict[str, Any]]" = field(default_factory=queue.Queue)
    logged: list[dict[str, Any]] = field(default_factory=list)

    @property
    def socket(self) -> Path:
        return self.files.kubelet / "plugins" / "csi.gkm.io" / "csi.sock"

    @property
    def registration(self) -> Path:
        return self.files.kubelet / "plugins_registry" / "csi.gkm.io-reg.sock"

    def answers(self) -> bool:
        """Return whether this process answers its Probe, as kubelet's startup probe asks.

        A predecessor that stops listens on the same path, and answers until it has seen its signal.

        Raises:
            AssertionError: the driver has ended; the message holds what it said.
        """
        if self.process.poll() is not None:
            self.wait_for("end")
            raise AssertionError(f"gkm-csi ended; it said: {self.logged}")
        if _listener(self.socket) != self.process.pid:
            return False
        # A client of its own for each look: one that was refused waits a second before it connects again.
        with Client(self.socket) as client:
            try:
                client.call("Probe", csi_pb2.ProbeRequest())
            except grpc.RpcError:
                return False
            return True

    def wait_for(self, event: str) -> dict[str, Any]:
        """Return the first event of that name that is logged from now on."""
        while True:
            line = self.events.get(timeout=DEADLINE)
            self.logged.append(line)
            if line.get("event") == event:
                return line
            if line.get("event") == "end":
                raise AssertionError(f"gkm-csi ended without {event!r}; it said: {self.logged}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(DEADLINE)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(DEADLINE)


@contextmanager
def driver(
    files: NodeFiles, namespace: MountNamespace, main: Sequence[str] = MAIN, *flags: str, ready: bool = True
) -> Iterator[Driver]:
    """Run the driver of a node; kill it at the end if it still runs."""
    layout = files.layout
    places = ("--state", layout.state, "--run", layout.run, "--kubelet", files.kubelet)
    command: tuple[str | Path, ...] = (
        sys.executable,
        *main,
        "--node",
        NODE,
        *places,
        "--driver-version-file",
        files.driver_file,
        # A test of captures does not depend on the free space of the machine's disk.
        "--capture-min-free-percent",
        "0",
        *flags,
    )
    process = subprocess.Popen(namespace.command(command), stderr=subprocess.PIPE, text=True, cwd="/")
    running = Driver(process, files)
    reader = threading.Thread(target=_read, args=(running,))
    reader.start()
    try:
        if ready:
            until(running.answers, "gkm-csi answers its Probe", DEADLINE_SECONDS)
        yield running
    finally:
        running.kill()
        reader.join(DEADLINE)
        if reader.is_alive():
            raise AssertionError("gkm-csi was killed, and something still holds its standard error")


def _listener(path: Path) -> int | None:
    """Return the process that listens on a socket; None if there is none."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except OSError:
            return None
        return int(_CREDENTIALS.unpack(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[0])


def _read(running: Driver) -> None:
    stream = running.process.stderr
    assert stream is not None
    with stream:
        for line in stream:
            try:
                running.events.put(json.loads(line))
            except ValueError:
                running.events.put({"event": "not JSON", "line": line})
    running.events.put({"event": "end"})
