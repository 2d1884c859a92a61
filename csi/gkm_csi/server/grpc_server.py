"""The gRPC transport on unix sockets, on which it listens again after another process has removed them.

Here every error becomes a status code and a message. The handlers come from the descriptors of the protocol, so no
*_pb2_grpc module is loaded (2 MiB less).

Kubelet finds this driver by the sockets in its directories. When these are emptied (a reset of kubelet, an
administrator), the server is unreachable: a new server on new sockets replaces it, and the old one finishes its calls.

A socket is bound under a hidden name and renamed: it replaces the socket of an earlier process in one step, and the
file that gRPC unlinks at the end of that process is not the new one. At the end of this process the sockets stay:
kubelet takes a missing socket for a removed driver, and a socket that refuses connections for a driver that restarts,
as in an upgrade.
"""

import errno
import logging
import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any, Final, Protocol

import grpc
from gkm.hoststate.escaping import escape
from gkm.hoststate.logs import fields
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from gkm_csi.status_errors import Code, StatusError, invalid_argument

WORKERS: Final = 4
"""Number of worker threads. Measured: 4 answer 64 concurrent calls faster than 1 or 10; a call waits for the kernel
only."""
MAX_CALLS: Final = 64
"""Calls in progress and waiting for a thread. gRPC itself refuses one more with RESOURCE_EXHAUSTED: kubelet does not
count that as final (csi_client.go, isFinalError), so it repeats the call."""
MAX_SOCKET_PATH: Final = 107
"""The longest path of a Unix socket in bytes (sockaddr_un without its terminating zero)."""
_INTERNAL_MESSAGE = "csi.gkm.io failed; its log on the node has the cause"
_OPTIONS = (
    ("grpc.max_receive_message_length", 256 << 10),
    ("grpc.so_reuseport", 0),
)
_LOG = logging.getLogger(__name__)
Handler = Callable[[Any], Message]
CallObserver = Callable[[str, str, float], None]
"""A function that is called after each gRPC call with its name, status code and duration in seconds."""
CHECK_SECONDS: Final = 5.0
_TEMPORARY_PREFIX: Final = ".gkm-"


def make_server(
    services: Mapping[ServiceDescriptor, object], sockets: Sequence[Path], observe: CallObserver = lambda *_: None
) -> grpc.Server:
    """Return a server that is not started yet and serves every service on every socket.

    Raises:
        ListenError: a socket cannot be bound.
    """
    pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="csi")
    server = grpc.server(pool, options=_OPTIONS, maximum_concurrent_rpcs=MAX_CALLS)
    handlers = [_service(descriptor, service, observe) for descriptor, service in services.items()]
    server.add_generic_rpc_handlers(handlers)
    try:
        _bind(server, tuple(dict.fromkeys(sockets)))
    except ListenError:
        server.start()  # a server that was never started cannot be stopped and stays bound
        server.stop(0).wait()
        raise
    return server


def _bind(server: grpc.Server, sockets: Sequence[Path]) -> None:
    """Bind every socket under a temporary name, then rename all; a failure leaves existing sockets in place."""
    temporary = {path: temporary_path(path, number) for number, path in enumerate(sockets)}
    for path, bound in temporary.items():
        if max(len(os.fsencode(path)), len(os.fsencode(bound))) > MAX_SOCKET_PATH:
            raise ListenError(f"{path}: longer than {MAX_SOCKET_PATH} bytes, the limit for a socket")
    # Only root may write to the socket: a process that can write to it mounts into pods.
    before = os.umask(0o077)
    path = sockets[0]
    try:
        for path in sockets:
            path.parent.mkdir(parents=True, exist_ok=True)
            remove_leftovers(path.parent)
            check_socket_path(path)
        for path in sockets:
            server.add_insecure_port(f"unix:{temporary[path]}")
        for path in sockets:
            temporary[path].rename(path)
    except (OSError, RuntimeError) as error:
        raise ListenError(
            f"{path}: cannot listen there; check that the directory is writable and that no file is in the way"
        ) from error
    finally:
        os.umask(before)


def _service(descriptor: ServiceDescriptor, service: object, observe: CallObserver) -> grpc.GenericRpcHandler:
    return grpc.method_handlers_generic_handler(
        descriptor.full_name,
        {method.name: _method(method, getattr(service, method.name), observe) for method in descriptor.methods},
    )


def _method(descriptor: MethodDescriptor, handler: Handler, observe: CallObserver) -> "grpc.RpcMethodHandler[Any, Any]":
    return grpc.unary_unary_rpc_method_handler(
        _with_status_codes(descriptor, handler, observe),
        # Decoded by the handler: gRPC answers INTERNAL for an invalid message, which is the caller's fault.
        request_deserializer=None,
        response_serializer=GetMessageClass(descriptor.output_type).SerializeToString,
    )


def _with_status_codes(
    descriptor: MethodDescriptor, handler: Handler, observe: CallObserver
) -> Callable[[bytes, grpc.ServicerContext], Message]:
    """Return `handler` for encoded requests, with errors as status codes.

    gRPC would send the text of any exception into the pod's events.
    """
    name = descriptor.name
    request_type = GetMessageClass(descriptor.input_type)

    def call(data: bytes, context: grpc.ServicerContext) -> Message:
        began = time.monotonic()
        try:
            answer = handler(_decode(request_type, data))
            observe(name, "OK", time.monotonic() - began)
            return answer
        except StatusError as refusal:
            _LOG.warning("gRPC call refused", extra=fields(call=name, code=refusal.code.value, reason=refusal.message))
            code, text = refusal.code, refusal.message
        except Exception:  # noqa: BLE001 -- logged, and INTERNAL to the caller
            _LOG.exception("gRPC call failed", extra=fields(call=name))
            code, text = Code.INTERNAL, _INTERNAL_MESSAGE
        observe(name, code.value, time.monotonic() - began)
        return context.abort(grpc.StatusCode[code.value], escape(text))

    return call


def _decode(kind: type[Message], data: bytes) -> Message:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise invalid_argument(f"the request is not a {kind.DESCRIPTOR.name}") from error


class ListenError(Exception):
    """A socket cannot be bound; the message names the path and the cause."""


class GrpcServer(Protocol):
    """The methods of grpc.Server that SocketServer calls."""

    def start(self) -> None:
        """Start to serve."""

    def stop(self, grace: float | None) -> Event:
        """Refuse new calls; the event is set when all calls have ended, after `grace` seconds at most."""


class SocketServer:
    """A server on `sockets` that is replaced by a new one when a socket is missing.

    `make_server` returns a bound server.
    """

    def __init__(self, make_server: Callable[[], GrpcServer], sockets: Sequence[Path]) -> None:
        self._make_server = make_server
        self._sockets = sockets
        self._server: GrpcServer | None = None
        self._own_inodes: dict[Path, tuple[int, int]] = {}

    def start(self) -> None:
        """Make a server and listen on the sockets.

        Raises:
            ListenError: a socket cannot be bound.
        """
        self._server = self._make_server()
        self._own_inodes = {path: _inode(path) for path in self._sockets}
        self._server.start()

    def restore(self, grace: float) -> None:
        """Listen again if a socket is missing or replaced.

        Calls in progress on the old server end within `grace` seconds.
        """
        missing = [str(path) for path, ours in self._own_inodes.items() if _inode(path) != ours]
        if not missing:
            return
        _LOG.warning("sockets of the CSI driver missing, listening again", extra=fields(sockets=missing))
        previous = self._server
        try:
            self.start()
        except ListenError:
            _LOG.exception("listening on the sockets of the CSI driver failed, will retry")
            return
        if previous is not None:
            previous.stop(grace)

    def stop(self, grace: float) -> None:
        """Stop the server and return when its calls have ended, after `grace` seconds at most."""
        if self._server is not None:
            self._server.stop(grace).wait()


def remove_leftovers(directory: Path) -> None:
    """Remove temporary sockets of processes that were killed before they renamed them."""
    for leftover in directory.glob(f"{_TEMPORARY_PREFIX}*"):
        if leftover.is_socket():
            leftover.unlink(missing_ok=True)


def check_socket_path(path: Path) -> None:
    """Check that a socket can be bound at a path: no file is there, or a socket that may be replaced.

    Raises:
        FileExistsError: another kind of file is there, which this driver must not remove.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode):
        raise FileExistsError(errno.EEXIST, "a file that is not a socket is in the way", str(path))


def temporary_path(path: Path, number: int) -> Path:
    """Return a hidden path beside `path`, at which socket `number` is bound first; kubelet ignores it."""
    return path.with_name(f"{_TEMPORARY_PREFIX}{os.getpid()}.{number}")


def _inode(path: Path) -> tuple[int, int]:
    try:
        status = path.lstat()
    except OSError:  # missing, or its directory was replaced by a file
        return (0, 0)
    return (status.st_dev, status.st_ino)
