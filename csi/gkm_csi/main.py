"""The process `gkm-csi`: assemble it, start it, and stop it in bounded time."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gkm.hoststate import locks, logs
from gkm.hoststate.command_line import print_line
from gkm.hoststate.logs import fields
from gkm.mounts import overlay
from gkm.mounts.mountinfo import TooManyMounts

from gkm_csi.counters import Counters
from gkm_csi.kernels.watch import KernelWatch
from gkm_csi.options import Options, parse_options
from gkm_csi.proto import csi_pb2, registration_pb2
from gkm_csi.server import grpc_server, liveness, socket_server
from gkm_csi.server.liveness import LivenessWatchdog, ProbeFailed
from gkm_csi.server.services import IdentityService, NodeService, RegistrationService
from gkm_csi.server.socket_server import ListenError, SocketServer
from gkm_csi.volumes import reconcile
from gkm_csi.volumes.captures import Captures
from gkm_csi.volumes.layers import VolumeLayers
from gkm_csi.volumes.locks import VolumeLocks
from gkm_csi.volumes.mounter import Mounter
from gkm_csi.volumes.publish import VolumePublisher
from gkm_csi.volumes.records import VolumeRecords
from gkm_csi.volumes.stats import VolumeStats
from gkm_csi.volumes.unpublish import VolumeUnpublisher

if TYPE_CHECKING:
    from google.protobuf.descriptor import ServiceDescriptor

GRACE_SECONDS: Final = 5
"""Calls in progress may end within this time after SIGTERM; each takes milliseconds."""

PREDECESSOR_SECONDS: Final = 15.0
"""An upgrade starts the new process when the old one received its signal, or a little before it has ended."""

_LOG = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code."""
    options = parse_options(sys.argv[1:] if arguments is None else arguments, os.environ)
    if options.probe:
        return _probe(options.endpoint)
    logs.configure(options.log_level)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        options.layout.make_directories()
        # Two processes that repair the same records and mounts would undo each other's work.
        with locks.process_lock(options.layout.process_lock("csi"), PREDECESSOR_SECONDS):
            _serve(options, stop)
    except (OSError, TooManyMounts, ListenError):
        _LOG.exception("start failed", extra=fields(node=options.node))
        return 1
    except locks.LockBusy:
        _LOG.error("another gkm-csi serves this node", extra=fields(node=options.node, state=str(options.layout.state)))
        return 1
    _LOG.info("stopped", extra=fields(node=options.node))
    return 0


def _serve(options: Options, stop: threading.Event) -> None:
    counters = Counters(options.layout)
    listener, wait_until_idle = _assemble(options, counters)
    listener.start()
    watchdog = LivenessWatchdog(options.endpoint)
    watchdog.start()
    counters.start()
    _LOG.info(
        "ready", extra=fields(node=options.node, endpoint=str(options.endpoint), registration=str(options.registration))
    )
    while not stop.wait(socket_server.CHECK_SECONDS):
        listener.restore(GRACE_SECONDS)
    # SIGALRM ends the process if a thread hangs in a syscall: the interpreter would wait for it.
    signal.alarm(2 * GRACE_SECONDS)
    watchdog.stop()
    listener.stop(GRACE_SECONDS)
    wait_until_idle()
    counters.stop()


def _probe(socket: Path) -> int:
    """Print whether the driver of this machine answers; return the exit code."""
    try:
        problem = liveness.probe(socket)
    except ProbeFailed as error:
        print_line(f"gkm-csi: {error}", error=True)
        return 1
    print_line(f"gkm-csi: the driver answers{f' and reports: {problem}' if problem else ''}")
    return 0


def _assemble(options: Options, counters: Counters) -> tuple[SocketServer, Callable[[], None]]:
    """Return the server, and a function that waits for remaining work after the server has stopped.

    The next process starts when this one releases its lock, and must find no work in progress.
    """
    missing = overlay.missing_features()
    for problem in missing:
        _LOG.error("kernel feature missing", extra=fields(node=options.node, missing=problem))
    volume_records = VolumeRecords(options.layout)
    mounter = Mounter(options.layout, options.kubelet)
    volume_locks = VolumeLocks()
    layers = VolumeLayers(options.node, options.layout, volume_records, mounter)
    captures = Captures(options.layout, layers, options.capture_min_free_percent)
    captures.sweep()
    kernels = KernelWatch(layers.mounted_layers, counters.kernels_measured)
    reconcile.reconcile(options.layout, volume_records, mounter)
    node = NodeService(
        name=options.node,
        max_volumes=options.max_volumes,
        capture_mode=options.capture_mode,
        kubelet=options.kubelet,
        missing=missing,
        stats=VolumeStats(volume_records, mounter, kernels.usage_measured),
        publisher=VolumePublisher(
            options.node,
            options.layout,
            volume_records=volume_records,
            mounter=mounter,
            layers=layers,
            volume_locks=volume_locks,
            driver_version=lambda: _driver_version(options.driver_version_file),
        ),
        unpublisher=VolumeUnpublisher(
            options.node,
            volume_records=volume_records,
            mounter=mounter,
            volume_locks=volume_locks,
            captures=captures,
            kernels=kernels,
            layer_ended=counters.layer_ended,
        ),
    )
    descriptors = csi_pb2.DESCRIPTOR.services_by_name
    services: dict[ServiceDescriptor, object] = {
        descriptors["Identity"]: IdentityService(missing),
        descriptors["Node"]: node,
        registration_pb2.DESCRIPTOR.services_by_name["Registration"]: RegistrationService(options.endpoint_for_kubelet),
    }
    sockets = tuple(dict.fromkeys((options.endpoint, options.registration)))

    def wait_until_idle() -> None:
        volume_locks.wait_until_idle()
        captures.stop()
        kernels.stop()

    return SocketServer(lambda: grpc_server.make_server(services, sockets, counters.observe), sockets), wait_until_idle


def _driver_version(path: Path) -> str | None:
    """Return the version of the loaded GPU driver, None without one (the file belongs to the kernel module)."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None


if __name__ == "__main__":
    sys.exit(main())
