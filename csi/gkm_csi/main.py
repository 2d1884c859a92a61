"""The process `gkm-csi`: its options, and how it is assembled, started, and stopped in bounded time.

Each option is a flag with an environment variable, and a default for a common node.
"""

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gkm.hoststate import locks, logs
from gkm.hoststate.command_line import Parser, print_line
from gkm.hoststate.layout import Layout
from gkm.hoststate.logs import fields
from gkm.mounts import id_mapping, overlay
from gkm.mounts.mountinfo import TooManyMounts

from gkm_csi.counters import Counters
from gkm_csi.kernels import KernelWatch
from gkm_csi.proto import csi_pb2, registration_pb2
from gkm_csi.server import grpc_server, liveness
from gkm_csi.server.grpc_server import ListenError, SocketServer
from gkm_csi.server.liveness import LivenessWatchdog, ProbeFailed
from gkm_csi.server.services import DRIVER_NAME, IdentityService, NodeService, RegistrationService
from gkm_csi.volumes import reconcile
from gkm_csi.volumes.captures import Captures
from gkm_csi.volumes.layers import VolumeLayers
from gkm_csi.volumes.locks import VolumeLocks
from gkm_csi.volumes.mounter import Mounter
from gkm_csi.volumes.publish import VolumePublisher
from gkm_csi.volumes.records import VolumeRecords
from gkm_csi.volumes.request import AUTO, CAPTURE_MODES, REQUEST
from gkm_csi.volumes.settled import SettledLayers
from gkm_csi.volumes.stats import VolumeStats
from gkm_csi.volumes.unpublish import VolumeUnpublisher

if TYPE_CHECKING:
    from google.protobuf.descriptor import ServiceDescriptor


GRACE_SECONDS: Final = 5
"""Seconds that calls in progress may take after SIGTERM; each takes milliseconds."""
PREDECESSOR_SECONDS: Final = 15.0
"""Seconds to wait for the previous process to end: an upgrade may start the new one while the old one stops."""
_LOG = logging.getLogger(__name__)
_MAX_NODE_ID = 256
_PERCENT: Final = re.compile(r"[0-9]{1,2}(\.[0-9]{1,6})?", re.ASCII)
_MAX_PERCENT: Final = 90
_SECONDS: Final = re.compile(r"[0-9]{1,7}(\.[0-9]{1,3})?", re.ASCII)
"""Bounds as in the agent's configuration (gkm.api.capture_settings), which this process does not import."""


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
        _LOG.exception("CSI driver failed, process ends", extra=fields(node=options.node))
        return 1
    except locks.LockBusy:
        _LOG.error(
            "another gkm-csi serves this node, this one ends",
            extra=fields(node=options.node, state=str(options.layout.state)),
        )
        return 1
    _LOG.info("CSI driver stopped", extra=fields(node=options.node))
    return 0


@dataclass(frozen=True, slots=True)
class Options:
    """The options of gkm-csi: the name of the node, and paths and limits on it."""

    node: str
    layout: Layout
    kubelet: Path
    endpoint: Path
    endpoint_for_kubelet: str
    registration: Path
    driver_version_file: Path
    max_volumes: int
    capture_mode: str
    capture_min_free_percent: float
    capture_settled_seconds: float
    log_level: str
    probe: bool


def _serve(options: Options, stop: threading.Event) -> None:
    counters = Counters(options.layout)
    listener, wait_until_idle = _assemble(options, counters)
    listener.start()
    watchdog = LivenessWatchdog(options.endpoint)
    watchdog.start()
    counters.start()
    _LOG.info(
        "CSI driver ready",
        extra=fields(node=options.node, endpoint=str(options.endpoint), registration=str(options.registration)),
    )
    while not stop.wait(grpc_server.CHECK_SECONDS):
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
    for problem in overlay.missing_features():
        _LOG.error(
            "kernel feature missing, volumes cannot be mounted", extra=fields(node=options.node, missing=problem)
        )
    if unmappable := id_mapping.missing_feature():
        _LOG.warning(
            "volumes for pods in user namespaces not supported by this node",
            extra=fields(node=options.node, missing=unmappable),
        )
    volume_records = VolumeRecords(options.layout)
    mounter = Mounter(options.layout, options.kubelet)
    volume_locks = VolumeLocks()
    layers = VolumeLayers(options.node, options.layout, volume_records, mounter)
    captures = Captures(options.layout, layers, options.capture_min_free_percent)
    captures.sweep()
    kernels = KernelWatch(layers.mounted_layers, counters.kernels_measured)
    # Without a destination each of these captures would only take disk.
    settled = SettledLayers(
        options.capture_settled_seconds if options.capture_mode == AUTO else 0,
        captures.capture_running,
        mounter.changed_ns,
    )
    reconcile.reconcile(options.layout, volume_records, mounter)
    node = NodeService(
        name=options.node,
        max_volumes=options.max_volumes,
        capture_mode=options.capture_mode,
        unmappable=unmappable,
        kubelet=options.kubelet,
        missing=overlay.missing_features,
        stats=VolumeStats(volume_records, mounter, (kernels.usage_measured, settled.usage_measured)),
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
            settled=settled,
            layer_ended=counters.layer_ended,
        ),
    )
    descriptors = csi_pb2.DESCRIPTOR.services_by_name
    services: dict[ServiceDescriptor, object] = {
        descriptors["Identity"]: IdentityService(overlay.missing_features),
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
    """Return the version of the loaded GPU driver, None if absent (the file belongs to the kernel module)."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None


def parse_options(arguments: Sequence[str], environment: Mapping[str, str]) -> Options:
    """Return the options; a flag overrides its environment variable.

    Raises:
        SystemExit: an option is missing or invalid; the message went to standard error.
    """
    parser = Parser(
        "gkm-csi", environment=environment, description="Mounts GPU kernel caches into pods (CSI driver csi.gkm.io)."
    )
    parser.add_version()
    flag = partial(parser.add_flag, default="")
    flag("--node", "name of the node, as Kubernetes knows it; required")
    flag("--state", "directory that the agent fills", default=str(Layout().state))
    flag("--run", "directory of records; empty after a reboot", default=str(Layout().run))
    flag(
        "--kubelet",
        "kubelet's root directory, the same path in the container as on the node",
        default="/var/lib/kubelet",
    )
    flag("--endpoint", f"CSI socket; else plugins/{DRIVER_NAME}/csi.sock below --kubelet", variable="CSI_ENDPOINT")
    flag("--kubelet-endpoint", "CSI socket as kubelet sees it; else --endpoint", variable="GKM_CSI_KUBELET_ENDPOINT")
    flag("--registration", "registration socket; else in kubelet's plugins_registry", variable="GKM_CSI_REGISTRATION")
    flag("--driver-version-file", "version of the loaded GPU driver", default="/sys/module/nvidia/version")
    flag("--max-volumes", "maximum number of volumes on this node", variable="GKM_CSI_MAX_VOLUMES", default="1024")
    flag(
        "--capture-mode",
        "private volumes whose new files are captured: auto (and just in time), request (by attribute) or off",
        variable="GKM_CAPTURE_MODE",
        default=REQUEST,
    )
    flag(
        "--capture-min-free-percent",
        "part of the disk that captures leave free, in percent",
        variable="GKM_CAPTURE_MIN_FREE_PERCENT",
        default="20",
    )
    flag(
        "--capture-settled-seconds",
        "a private volume that no program wrote to for so long is captured while its pod runs; 0 waits for its end",
        variable="GKM_CAPTURE_SETTLED_SECONDS",
        default="120",
    )
    parser.add_log_level()
    parser.add_argument("--probe", action="store_true", help="probe the driver that runs on this node, and exit")
    parsed = parser.parse_args(arguments)

    if not parsed.node or len(parsed.node.encode()) > _MAX_NODE_ID:
        parser.error("set the name of the node: --node or GKM_NODE, at most 256 bytes")
    if not parsed.max_volumes.isdecimal():
        parser.error("--max-volumes must be a number; 0 leaves it to kubelet")
    if parsed.capture_mode not in CAPTURE_MODES:
        parser.error(f"--capture-mode must be one of {', '.join(CAPTURE_MODES)}")
    if not _PERCENT.fullmatch(parsed.capture_min_free_percent) or float(parsed.capture_min_free_percent) > _MAX_PERCENT:
        parser.error(f"--capture-min-free-percent must be a number from 0 to {_MAX_PERCENT}")
    if not _SECONDS.fullmatch(parsed.capture_settled_seconds):
        parser.error("--capture-settled-seconds must be a number of seconds")
    kubelet = _absolute(parser, parsed.kubelet)
    endpoint = (
        parsed.endpoint.removeprefix("unix://").removeprefix("unix:") or f"{kubelet}/plugins/{DRIVER_NAME}/csi.sock"
    )
    registration = parsed.registration or f"{kubelet}/plugins_registry/{DRIVER_NAME}-reg.sock"
    return Options(
        node=parsed.node,
        layout=Layout(_absolute(parser, parsed.state), _absolute(parser, parsed.run)),
        kubelet=kubelet,
        endpoint=_absolute(parser, endpoint),
        endpoint_for_kubelet=parsed.kubelet_endpoint or endpoint,
        registration=_absolute(parser, registration),
        driver_version_file=Path(parsed.driver_version_file),
        max_volumes=int(parsed.max_volumes),
        capture_mode=parsed.capture_mode,
        capture_min_free_percent=float(parsed.capture_min_free_percent),
        capture_settled_seconds=float(parsed.capture_settled_seconds),
        log_level=parsed.log_level,
        probe=parsed.probe,
    )


def _absolute(parser: Parser, text: str) -> Path:
    path = Path(text)
    if not path.is_absolute() or ".." in path.parts:
        parser.error(f"{text}: must be an absolute path without '..'")
    return path


if __name__ == "__main__":
    sys.exit(main())
