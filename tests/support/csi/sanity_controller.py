"""A controller for csi-sanity beside a driver without one: it makes volumes. In tests only.

On its own socket it serves the Controller service and the plugin's capabilities, and passes every other call on to the
real driver, byte by byte: without CONTROLLER_SERVICE among the capabilities csi-sanity does not test the life of a
volume. Its volumes carry the context that kubelet gives an inline volume.
"""

import itertools
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import grpc
from support.host.waiting import scaled

DEADLINE = scaled(30)
WORKERS = 4
CONTROLLER = "/csi.v1.Controller/"
CAPABILITIES = "/csi.v1.Identity/GetPluginCapabilities"
_CONTROLLER_SERVICE = b"\x08\x01"
_TWO_BYTES = 1 << 14


class _Front(grpc.GenericRpcHandler):
    def __init__(self, driver: grpc.Channel, context: Mapping[str, str]) -> None:
        self._driver = driver
        self._context = context
        self._numbers = itertools.count()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes] | None":
        path = handler_call_details.method
        match path:
            case "/csi.v1.Controller/CreateVolume":
                return grpc.unary_unary_rpc_method_handler(self._created)
            # Neither publishing nor expansion: of a controller like this only volumes are asked.
            case "/csi.v1.Controller/DeleteVolume" | "/csi.v1.Controller/ControllerGetCapabilities":
                return grpc.unary_unary_rpc_method_handler(_nothing)
            case "/csi.v1.Identity/GetPluginCapabilities":
                return grpc.unary_unary_rpc_method_handler(_capabilities)
        return None if path.startswith(CONTROLLER) else grpc.unary_unary_rpc_method_handler(partial(self._pass, path))

    def _created(self, _: bytes, __: grpc.ServicerContext) -> bytes:
        """CreateVolumeResponse{volume: {volume_id = 2, volume_context = 3}}."""
        pairs = ((key.encode(), value.encode()) for key, value in self._context.items())
        context = b"".join(_field(3, _field(1, key) + _field(2, value)) for key, value in pairs)
        return _field(1, _field(2, f"csi-sanity-{next(self._numbers)}".encode()) + context)

    def _pass(self, path: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            return self._driver.unary_unary(path, bytes, bytes)(request, timeout=DEADLINE)
        except grpc.RpcError as error:
            context.abort(error.code(), str(error.details()))


def _nothing(_: bytes, __: grpc.ServicerContext) -> bytes:
    return b""


def _capabilities(_: bytes, __: grpc.ServicerContext) -> bytes:
    """GetPluginCapabilitiesResponse{capabilities: [{service: {type: CONTROLLER_SERVICE}}]}."""
    return _field(1, _field(1, _CONTROLLER_SERVICE))


def _field(number: int, value: bytes) -> bytes:
    """Return a length-delimited field of protobuf: the driver's own protocol has no controller."""
    length = len(value)
    assert length < _TWO_BYTES
    size = bytes([length]) if length < 1 << 7 else bytes([length & 0x7F | 0x80, length >> 7])
    return bytes([number << 3 | 2]) + size + value


@contextmanager
def controller(driver: Path, socket: Path, context: Mapping[str, str]) -> Iterator[None]:
    """Serve on `socket` in front of the driver on another; its volumes have `context`."""
    options = (("grpc.use_local_subchannel_pool", 1),)
    with ThreadPoolExecutor(WORKERS) as pool, grpc.insecure_channel(f"unix:{driver}", options=options) as channel:
        server = grpc.server(pool)
        server.add_generic_rpc_handlers((_Front(channel, context),))
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        try:
            yield
        finally:
            server.stop(0).wait(DEADLINE)
