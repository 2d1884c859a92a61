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
from gkm.mounts import abilities
from gkm.mounts.mountinfo import TooManyMounts

from gkm_csi import listening, liveness, reconcile, server, settings
from gkm_csi.captures import Captures
from gkm_csi.counters import Counters
from gkm_csi.identity import Identity
from gkm_csi.layers import Layers
from gkm_csi.ledger import Ledger
from gkm_csi.listening import CannotListen, Listening
from gkm_csi.liveness import Liveness, NoAnswer
from gkm_csi.mounter import Mounter
from gkm_csi.node import Node
from gkm_csi.proto import csi_pb2, registration_pb2
from gkm_csi.publish import Publisher
from gkm_csi.registration import Registration
from gkm_csi.settings import Settings
from gkm_csi.stats import Stats
from gkm_csi.underway import Underway
from gkm_csi.unpublish import Unpublisher

if TYPE_CHECKING:
    from google.protobuf.descriptor import ServiceDescriptor

GRACE_SECONDS: Final = 5
"""Calls under way may end within this time after SIGTERM; each takes milliseconds."""

PREDECESSOR_SECONDS: Final = 15.0
"""An upgrade starts the new process when the old one has been told to end, or a little before it has ended."""

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
        # Two processes that mend the same records and mounts would undo each other's work.
        with locks.only(told.layout.state / "locks" / "csi", PREDECESSOR_SECONDS):
            _serve(told, stop)
    except (OSError, TooManyMounts, CannotListen):
        log.exception("cannot start", extra=fields(node=told.node))
        return 1
    except locks.Busy:
        log.error("another gkm-csi serves this node", extra=fields(node=told.node, state=str(told.layout.state)))  # noqa: TRY400 -- it says all
        return 1
    log.info("stopped", extra=fields(node=told.node))
    return 0


def _serve(told: Settings, stop: threading.Event) -> None:
    counters = Counters(told.layout)
    served, settle = _assemble(told, counters)
    served.start()
    alive = Liveness(told.endpoint)
    alive.start()
    counters.start()
    log.info("ready", extra=fields(node=told.node, endpoint=str(told.endpoint), registration=str(told.registration)))
    while not stop.wait(listening.EVERY_SECONDS):
        served.mend(GRACE_SECONDS)
    # The kernel ends us if a thread hangs in a syscall: the interpreter would wait for it.
    signal.alarm(2 * GRACE_SECONDS)
    alive.stop()
    served.stop(GRACE_SECONDS)
    settle()
    counters.stop()


def _probe(socket: Path) -> int:
    """Say whether the driver of this machine answers; return the exit code."""
    try:
        against = liveness.probe(socket)
    except NoAnswer as error:
        print_line(f"gkm-csi: {error}", error=True)
        return 1
    print_line(f"gkm-csi: it answers{f', and says: {against}' if against else ''}")
    return 0


def _assemble(told: Settings, counters: Counters) -> tuple[Listening, Callable[[], None]]:
    """Return what serves, and what waits for the work that is left when it has been stopped.

    The successor must find nobody at work: it begins when the lock of the process is given back.
    """
    missing = abilities.missing()
    for sentence in missing:
        log.error("this node cannot mount", extra=fields(node=told.node, missing=sentence))
    ledger, mounter, underway = Ledger(told.layout), Mounter(told.layout, told.kubelet), Underway()
    layers = Layers(told.node, told.layout, ledger, mounter)
    captures = Captures(told.layout, layers.of_mounted)
    captures.sweep()
    reconcile.reconcile(told.layout, ledger, mounter)
    node = Node(
        name=told.node,
        max_volumes=told.max_volumes,
        kubelet=told.kubelet,
        missing=missing,
        stats=Stats(ledger, mounter),
        publisher=Publisher(
            told.node,
            told.layout,
            ledger=ledger,
            mounter=mounter,
            layers=layers,
            underway=underway,
            driver_version=lambda: _driver_version(told.driver_version_file),
        ),
        unpublisher=Unpublisher(told.node, ledger=ledger, mounter=mounter, underway=underway, captures=captures),
    )
    described = csi_pb2.DESCRIPTOR.services_by_name
    services: dict[ServiceDescriptor, object] = {
        described["Identity"]: Identity(missing),
        described["Node"]: node,
        registration_pb2.DESCRIPTOR.services_by_name["Registration"]: Registration(told.endpoint_for_kubelet),
    }
    sockets = tuple(dict.fromkeys((told.endpoint, told.registration)))

    def settle() -> None:
        underway.wait()
        captures.stop()

    return Listening(lambda: server.make(services, sockets, counters.observe), sockets), settle


def _driver_version(path: Path) -> str | None:
    """Return the version of the GPU driver that is loaded, None where none is (the file is the kernel module's)."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None


if __name__ == "__main__":
    sys.exit(main())
