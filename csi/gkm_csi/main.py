"""The process `gkm-csi`: put together, started, and stopped in bounded time."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import grpc
from gkm.hoststate import logs
from gkm.hoststate.logs import fields
from gkm.mounts import abilities
from gkm.mounts.mountinfo import TooManyMounts

from gkm_csi import liveness, reconcile, server, settings
from gkm_csi.counters import Counters
from gkm_csi.identity import Identity
from gkm_csi.ledger import Ledger
from gkm_csi.liveness import Liveness, NoAnswer
from gkm_csi.mounter import Mounter
from gkm_csi.node import Node
from gkm_csi.proto import csi_pb2, registration_pb2
from gkm_csi.publish import Publisher
from gkm_csi.registration import Registration
from gkm_csi.settings import Settings
from gkm_csi.underway import Underway
from gkm_csi.unpublish import Unpublisher

GRACE_SECONDS: Final = 5
"""Calls under way may end within this time after SIGTERM; each takes milliseconds."""

log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code."""
    told = settings.parse(sys.argv[1:] if arguments is None else arguments, os.environ)
    if told.probe:
        return _probe(told.endpoint)
    logs.start(told.log_level)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        told.layout.make()
        counters = Counters(told.layout)
        served = _assemble(told, counters)
    except (OSError, TooManyMounts, server.CannotListen):
        log.exception("cannot start", extra=fields(node=told.node))
        return 1
    served.start()
    alive = Liveness(told.endpoint)
    alive.start()
    counters.start()
    log.info("ready", extra=fields(node=told.node, endpoint=str(told.endpoint), registration=str(told.registration)))
    stop.wait()
    # The kernel ends us if a thread hangs in a syscall: the interpreter would wait for it.
    signal.alarm(2 * GRACE_SECONDS)
    alive.stop()
    served.stop(GRACE_SECONDS).wait()
    counters.stop()
    log.info("stopped", extra=fields(node=told.node))
    return 0


def _probe(socket: Path) -> int:
    """Say whether the driver of this machine answers; return the exit code."""
    try:
        against = liveness.probe(socket)
    except NoAnswer as error:
        print(f"gkm-csi: {error}", file=sys.stderr)  # noqa: T201 -- a command line
        return 1
    print(f"gkm-csi: it answers{f', and says: {against}' if against else ''}")  # noqa: T201 -- a command line
    return 0


def _assemble(told: Settings, counters: Counters) -> grpc.Server:
    missing = abilities.missing()
    for sentence in missing:
        log.error("this node cannot mount", extra=fields(node=told.node, missing=sentence))
    ledger, mounter, underway = Ledger(told.layout), Mounter(told.layout, told.kubelet), Underway()
    reconcile.reconcile(told.layout, ledger, mounter)
    node = Node(
        name=told.node,
        max_volumes=told.max_volumes,
        kubelet=told.kubelet,
        missing=missing,
        ledger=ledger,
        publisher=Publisher(
            told.node,
            told.layout,
            ledger=ledger,
            mounter=mounter,
            underway=underway,
            driver_version=lambda: _driver_version(told.driver_version_file),
        ),
        unpublisher=Unpublisher(told.node, ledger, mounter, underway),
    )
    services = csi_pb2.DESCRIPTOR.services_by_name
    return server.make(
        {
            services["Identity"]: Identity(missing),
            services["Node"]: node,
            registration_pb2.DESCRIPTOR.services_by_name["Registration"]: Registration(told.endpoint_for_kubelet),
        },
        (told.endpoint, told.registration),
        counters.observe,
    )


def _driver_version(path: Path) -> str | None:
    """Return the version of the GPU driver that is loaded, None where none is (the file is the kernel module's)."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None


if __name__ == "__main__":
    sys.exit(main())
