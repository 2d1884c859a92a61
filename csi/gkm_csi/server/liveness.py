"""Probe this process over its own socket: from inside, and by `gkm-csi --probe` as kubelet's exec probe.

Kubelet's other probes need a TCP port: an open port in a privileged process, and mounts that depend on the pod network.
A frequent exec probe costs a Python interpreter each time, a sidecar a container on every node. So a thread of this
process probes the socket, the transport and the threads that kubelet uses. When no probe succeeds for a while,
faulthandler ends the process from a C thread, which needs no lock of Python's. Kubelet starts it again: the process
survives a kill at any instruction.
"""

import faulthandler
import logging
import sys
import threading
from pathlib import Path
from typing import Final

import grpc
from gkm.hoststate.logs import fields

from gkm_csi.proto import csi_pb2

PROBE_INTERVAL_SECONDS: Final = 30.0
WATCHDOG_SECONDS: Final = 180.0
"""Seconds without an answer after which the process ends itself. A single mount that hangs in the kernel takes less."""
PROBE_TIMEOUT_SECONDS: Final = 20.0

_LOG = logging.getLogger(__name__)

# A separate pool: the probe must not share a connection with another channel to the same path. No retries: the next
# probe follows anyway.
_CHANNEL_OPTIONS: Final = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0))


class ProbeFailed(Exception):
    """The process did not answer the probe; the message has the cause."""


def probe(socket: Path, seconds: float = PROBE_TIMEOUT_SECONDS) -> str:
    """Probe the driver on a socket; return the problem that it reports, "" if it is healthy.

    A driver that cannot mount on this machine answers, so it is alive: its errors reach the events of pods.

    Raises:
        ProbeFailed: no answer arrives in time.
    """
    with grpc.insecure_channel(f"unix:{socket}", options=_CHANNEL_OPTIONS) as channel:
        call = channel.unary_unary(
            "/csi.v1.Identity/Probe",
            request_serializer=csi_pb2.ProbeRequest.SerializeToString,
            response_deserializer=csi_pb2.ProbeResponse.FromString,
        )
        try:
            call(csi_pb2.ProbeRequest(), timeout=seconds)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                return str(error.details())
            raise ProbeFailed(f"{socket}: {error.code().name}: {error.details()}") from error
    return ""


class LivenessWatchdog:
    """Probe periodically; each answer rewinds a timer that ends the process when it runs out."""

    def __init__(
        self,
        socket: Path,
        *,
        interval: float = PROBE_INTERVAL_SECONDS,
        watchdog: float = WATCHDOG_SECONDS,
        probe_timeout: float = PROBE_TIMEOUT_SECONDS,
    ) -> None:
        self._socket = socket
        self._interval = interval
        self._watchdog = watchdog
        self._probe_timeout = probe_timeout
        self._arming = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="liveness", daemon=True)

    def start(self) -> None:
        """Start to probe the socket; the server must be listening already."""
        self._arm()
        self._thread.start()

    def stop(self) -> None:
        """Stop probing, and cancel the timer that would end the process."""
        with self._arming:
            self._stop.set()
            faulthandler.cancel_dump_traceback_later()

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            try:
                probe(self._socket, self._probe_timeout)
            except ProbeFailed as error:
                log_fields = fields(reason=str(error), ends_after_seconds=self._watchdog)
                _LOG.warning("this process did not answer its own liveness probe", extra=log_fields)
            else:
                self._arm()

    def _arm(self) -> None:
        with self._arming:
            if not self._stop.is_set():
                faulthandler.dump_traceback_later(self._watchdog, exit=True, file=sys.stderr)
