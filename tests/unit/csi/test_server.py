"""The transport alone: its limits on concurrent calls."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from typing import Any

import grpc
import pytest
from gkm_csi.proto import csi_pb2 as csi
from gkm_csi.server import grpc_server as server
from gkm_csi.server.services import IdentityService
from gkm_csi.status_errors import Code, StatusError

DEADLINE = 60


class Held(IdentityService):
    """An identity whose Probe waits until the test releases it."""

    def __init__(self) -> None:
        super().__init__(list)
        self.go_on = Event()

    def Probe(self, request: csi.ProbeRequest) -> csi.ProbeResponse:  # noqa: N802 -- name of the RPC
        assert self.go_on.wait(DEADLINE)
        return super().Probe(request)


def test_a_kernel_feature_that_appears_needs_no_restart() -> None:
    missing = ["the kernel has no overlay file system: load the module 'overlay' on the node"]
    identity = IdentityService(lambda: missing)
    with pytest.raises(StatusError) as caught:
        identity.Probe(csi.ProbeRequest())
    assert caught.value.code is Code.FAILED_PRECONDITION
    assert str(caught.value).endswith("load the module 'overlay' on the node; the next call looks again")
    missing.clear()
    assert identity.Probe(csi.ProbeRequest()).ready.value


def probe_over(channel: grpc.Channel) -> Any:  # noqa: ANN401 -- grpcio's stubs have no type of a call
    return channel.unary_unary(
        "/csi.v1.Identity/Probe",
        request_serializer=csi.ProbeRequest.SerializeToString,
        response_deserializer=csi.ProbeResponse.FromString,
    )


@pytest.fixture
def socket() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gkm-csi-") as directory:
        yield Path(directory) / "csi.sock"


def test_a_call_beyond_the_limit_is_refused_at_once_and_the_others_are_served(socket: Path) -> None:
    held = Held()
    running = server.make_server({csi.DESCRIPTOR.services_by_name["Identity"]: held}, [socket])
    running.start()
    try:
        with grpc.insecure_channel(f"unix:{socket}") as channel:
            probe = probe_over(channel)
            calls = [probe.future(csi.ProbeRequest(), timeout=DEADLINE) for _ in range(server.MAX_CALLS + 1)]
            ended: SimpleQueue[Any] = SimpleQueue()
            for call in calls:
                call.add_done_callback(ended.put)

            # The code is one of those after which kubelet asks again (csi_client.go, isFinalError).
            assert ended.get(timeout=DEADLINE).code() is grpc.StatusCode.RESOURCE_EXHAUSTED

            held.go_on.set()
            codes = [call.code() for call in calls]
            assert codes.count(grpc.StatusCode.OK) == server.MAX_CALLS
            assert calls[0].result(DEADLINE).ready.value
    finally:
        held.go_on.set()
        assert running.stop(DEADLINE).wait(DEADLINE)


class Refusing(IdentityService):
    """An identity that refuses with foreign text."""

    def Probe(self, request: csi.ProbeRequest) -> csi.ProbeResponse:  # noqa: N802, ARG002 -- names of the RPC
        raise StatusError(Code.UNAVAILABLE, "a\x1b[2J\x9b31m\x85\u202eb")


def test_the_words_of_a_refusal_are_a_printable_line(socket: Path) -> None:
    running = server.make_server({csi.DESCRIPTOR.services_by_name["Identity"]: Refusing(list)}, [socket])
    running.start()
    try:
        with grpc.insecure_channel(f"unix:{socket}") as channel:
            probe = probe_over(channel)
            with pytest.raises(grpc.RpcError) as refused:
                probe(csi.ProbeRequest(), timeout=DEADLINE)
        assert refused.value.details() == r"a\x1b[2J\x9b31m\x85\u202eb"
    finally:
        running.stop(0).wait(DEADLINE)
