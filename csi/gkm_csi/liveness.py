"""Whether this process still answers: asked over its own socket, by itself and (`gkm-csi --probe`) by kubelet.

Kubelet's other probes need a TCP port, which nobody should find open in a privileged process, and which would tie the
node's mounts to the pod network; a probe by exec costs a Python interpreter each time, and a sidecar a container on
every node. So the process asks itself, through the same socket, transport and threads that kubelet uses; when no
answer comes for a while, faulthandler ends it from a thread of C, which needs no lock of Python's. Kubelet starts it
again: it is made to be killed at any instruction.
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
"""Without an answer for so long it ends. A mount that the kernel holds up must not cost the others theirs sooner."""
PROBE_TIMEOUT_SECONDS: Final = 20.0

log = logging.getLogger(__name__)

# Without a pool of its own it would share a connection with whoever talks to the same path; and nothing is to be tried
# again here, for the next time comes anyway.
_CHANNEL_OPTIONS: Final = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0))


class ProbeFailed(Exception):
    """The process on a socket does not answer; the message says how."""


def probe(socket: Path, seconds: float = PROBE_TIMEOUT_SECONDS) -> str:
    """Return what the driver on a socket says against itself, "" for nothing.

    A driver that cannot mount on this machine answers, so it is alive: pods read from it why.

    Raises:
        NoAnswer: there is none in time.
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
    """Asks again and again; the time is wound up by every answer, and ends the process when it has run out."""

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
        """Begin; the server must be listening."""
        self._arm()
        self._thread.start()

    def stop(self) -> None:
        """End nothing any more."""
        with self._arming:
            self._stop.set()
            faulthandler.cancel_dump_traceback_later()

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            try:
                probe(self._socket, self._probe_timeout)
            except ProbeFailed as error:
                log.warning("no answer on our own socket", extra=fields(reason=str(error)))
            else:
                self._arm()

    def _arm(self) -> None:
        with self._arming:
            if not self._stop.is_set():
                faulthandler.dump_traceback_later(self._watchdog, exit=True, file=sys.stderr)
