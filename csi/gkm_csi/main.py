"""The process `gkm-csi`: put together, started, and stopped in bounded time."""

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
from gkm.mounts import kernel_features as abilities
from gkm.mounts.mountinfo import TooManyMounts

from gkm_csi import liveness, reconcile, server
from gkm_csi import options as settings
from gkm_csi import socket_server as listening
from gkm_csi.captures import Captures
from gkm_csi.counters import Counters
from gkm_csi.identity import IdentityService
from gkm_csi.liveness import LivenessWatchdog, ProbeFailed
from gkm_csi.mounter import Mounter
from gkm_csi.node import NodeService
from gkm_csi.options import Options
from gkm_csi.proto import csi_pb2, registration_pb2
from gkm_csi.publish import VolumePublisher
from gkm_csi.registration import RegistrationService
from gkm_csi.socket_server import ListenError, SocketServer
from gkm_csi.stats import VolumeStats
from gkm_csi.unpublish import VolumeUnpublisher
from gkm_csi.volume_layers import VolumeLayers
from gkm_csi.volume_locks import VolumeLocks
from gkm_csi.volume_records import VolumeRecords

if TYPE_CHECKING:
    from google.protobuf.descriptor import ServiceDescriptor

GRACE_SECONDS: Final = 5
"""Calls under way may end within this time after SIGTERM; each takes milliseconds."""

PREDECESSOR_SECONDS: Final = 15.0
"""An upgrade starts the new process when the old one has been told to end, or a little before it has ended."""

log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code."""
    options = settings.parse_options(sys.argv[1:] if arguments is None else arguments, os.environ)
    if options.probe:
        return _probe(options.endpoint)
    logs.configure(options.log_level)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        options.layout.make_directories()
        # Two processes that mend the same records and mounts would undo each other's work.
        with locks.process_lock(options.layout.state / "locks" / "csi", PREDECESSOR_SECONDS):
            _serve(options, stop)
    except (OSError, TooManyMounts, ListenError):
        log.exception("cannot start", extra=fields(node=options.node))
        return 1
    except locks.LockBusy:
        log.error("another gkm-csi serves this node", extra=fields(node=options.node, state=str(options.layout.state)))  # noqa: TRY400 -- it says all
        return 1
    log.info("stopped", extra=fields(node=options.node))
    return 0


def _serve(options: Options, stop: threading.Event) -> None:
    counters = Counters(options.layout)
    listener, wait_until_idle = _assemble(options, counters)
    listener.start()
    watchdog = LivenessWatchdog(options.endpoint)
    watchdog.start()
    counters.start()
    log.info(
        "ready", extra=fields(node=options.node, endpoint=str(options.endpoint), registration=str(options.registration))
    )
    while not stop.wait(listening.CHECK_SECONDS):
        listener.restore(GRACE_SECONDS)
    # The kernel ends us if a thread hangs in a syscall: the interpreter would wait for it.
    signal.alarm(2 * GRACE_SECONDS)
    watchdog.stop()
    listener.stop(GRACE_SECONDS)
    wait_until_idle()
    counters.stop()


def _probe(socket: Path) -> int:
    """Say whether the driver of this machine answers; return the exit code."""
    try:
        problem = liveness.probe(socket)
    except ProbeFailed as error:
        print_line(f"gkm-csi: {error}", error=True)
        return 1
    print_line(f"gkm-csi: it answers{f', and says: {problem}' if problem else ''}")
    return 0


def _assemble(options: Options, counters: Counters) -> tuple[SocketServer, Callable[[], None]]:
    """Return what serves, and what waits for the work that is left when it has been stopped.

    The successor must find nobody at work: it begins when the lock of the process is given back.
    """
    missing = abilities.missing_features()
    for sentence in missing:
        log.error("this node cannot mount", extra=fields(node=options.node, missing=sentence))
    volume_records, mounter, volume_locks = (
        VolumeRecords(options.layout),
        Mounter(options.layout, options.kubelet),
        VolumeLocks(),
    )
    layers = VolumeLayers(options.node, options.layout, volume_records, mounter)
    captures = Captures(options.layout, layers.mounted_layers)
    captures.sweep()
    reconcile.reconcile(options.layout, volume_records, mounter)
    node = NodeService(
        name=options.node,
        max_volumes=options.max_volumes,
        kubelet=options.kubelet,
        missing=missing,
        stats=VolumeStats(volume_records, mounter),
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
            options.node, volume_records=volume_records, mounter=mounter, volume_locks=volume_locks, captures=captures
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

    return SocketServer(lambda: server.make_server(services, sockets, counters.observe), sockets), wait_until_idle


def _driver_version(path: Path) -> str | None:
    """Return the version of the GPU driver that is loaded, None where none is (the file is the kernel module's)."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None


if __name__ == "__main__":
    sys.exit(main())
