"""Transport: services of values on unix sockets. Every error becomes a code and a sentence, here and nowhere else.

Handlers are made from the descriptors of the protocol, so no *_pb2_grpc module is loaded.
"""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import grpc
from gkm.hoststate.escaping import escape
from gkm.hoststate.logs import fields
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from gkm_csi import socket_server as listening
from gkm_csi.socket_server import ListenError
from gkm_csi.status_errors import Code, StatusError, invalid_argument

WORKERS: Final = 4
"""Threads. Measured: 4 answer 64 concurrent calls faster than 1 or 10; no call waits for anything but the kernel."""
MAX_CALLS: Final = 64
"""Calls under way and waiting for a thread. One more is answered RESOURCE_EXHAUSTED by gRPC, before it reaches us:
kubelet counts that among the errors that are not final (csi_client.go, isFinalError), so it asks again."""
MAX_SOCKET_PATH: Final = 107
"""Bytes that fit into sockaddr_un, less the terminating zero."""

_INTERNAL_MESSAGE = "csi.gkm.io could not do this; its log on the node says why"
_OPTIONS = (
    ("grpc.max_receive_message_length", 256 << 10),
    ("grpc.so_reuseport", 0),
)

log = logging.getLogger(__name__)

Handler = Callable[[Any], Message]
CallObserver = Callable[[str, str, float], None]
"""Told of every call that has ended: its name, the code of gRPC, and the seconds it took."""


def _no_observer(call: str, code: str, seconds: float) -> None:
    """Tell nobody."""


def make_server(
    services: Mapping[ServiceDescriptor, object], sockets: Sequence[Path], observe: CallObserver = _no_observer
) -> grpc.Server:
    """Return a server, not started yet, that answers every service on every socket.

    Raises:
        CannotListen: a socket cannot be made.
    """
    pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="csi")
    server = grpc.server(pool, options=_OPTIONS, maximum_concurrent_rpcs=MAX_CALLS)
    handlers = [_service(descriptor, service, observe) for descriptor, service in services.items()]
    server.add_generic_rpc_handlers(handlers)
    try:
        _bind(server, tuple(dict.fromkeys(sockets)))
    except ListenError:
        server.start()  # what has not been started cannot be stopped, and keeps what it is bound to
        server.stop(0).wait()
        raise
    return server


def _bind(server: grpc.Server, sockets: Sequence[Path]) -> None:
    """Bind every socket, then put all in their places: where one cannot be, those that are there stay."""
    temporary_path = {path: listening.temporary_path(path, number) for number, path in enumerate(sockets)}
    for path, bound in temporary_path.items():
        if max(len(os.fsencode(path)), len(os.fsencode(bound))) > MAX_SOCKET_PATH:
            raise ListenError(f"{path}: longer than the {MAX_SOCKET_PATH} bytes that the name of a socket may have")
    # The socket belongs to root: whoever can write to it mounts into pods.
    before = os.umask(0o077)
    path = sockets[0]
    try:
        for path in sockets:
            path.parent.mkdir(parents=True, exist_ok=True)
            listening.remove_leftovers(path.parent)
            listening.check_socket_path(path)
        for path in sockets:
            server.add_insecure_port(f"unix:{temporary_path[path]}")
        for path in sockets:
            temporary_path[path].rename(path)
    except (OSError, RuntimeError) as error:
        raise ListenError(f"{path}: cannot listen there; is the directory writable, and no file in the way?") from error
    finally:
        os.umask(before)


def _service(descriptor: ServiceDescriptor, service: object, observe: CallObserver) -> grpc.GenericRpcHandler:
    return grpc.method_handlers_generic_handler(
        descriptor.full_name,
        {method.name: _method(method, getattr(service, method.name), observe) for method in descriptor.methods},
    )


def _method(descriptor: MethodDescriptor, handler: Handler, observe: CallObserver) -> "grpc.RpcMethodHandler[Any, Any]":
    return grpc.unary_unary_rpc_method_handler(
        _with_status_codes(descriptor.name, _decoded(GetMessageClass(descriptor.input_type), handler), observe),
        # Read by us: gRPC answers INTERNAL for bytes that are no message, which are the fault of the caller.
        request_deserializer=None,
        response_serializer=GetMessageClass(descriptor.output_type).SerializeToString,
    )


def _decoded(kind: type[Message], handler: Handler) -> Handler:
    def call(data: bytes) -> Message:
        try:
            message = kind.FromString(data)
        except DecodeError as error:
            raise invalid_argument(f"the request is no {kind.DESCRIPTOR.name}") from error
        return handler(message)

    return call


def _with_status_codes(
    name: str, handler: Handler, observe: CallObserver
) -> Callable[[Any, grpc.ServicerContext], Message]:
    """Return `handler` with its errors as codes: gRPC would send the text of any exception into the pod's events."""

    def call(message: Any, context: grpc.ServicerContext) -> Message:  # noqa: ANN401 -- one for every kind of message
        began = time.monotonic()
        try:
            answer = handler(message)
            observe(name, "OK", time.monotonic() - began)
            return answer
        except StatusError as refusal:
            log.warning("refused", extra=fields(call=name, code=refusal.code.value, reason=refusal.message))
            code, text = refusal.code, refusal.message
        except Exception:
            log.exception("failed", extra=fields(call=name))
            code, text = Code.INTERNAL, _INTERNAL_MESSAGE
        observe(name, code.value, time.monotonic() - began)
        return context.abort(grpc.StatusCode[code.value], escape(text))

    return call
