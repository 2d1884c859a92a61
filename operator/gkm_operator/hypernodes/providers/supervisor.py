"""One external provider: its child is started, watched, ended and started again; its last good HyperNodes count on.

A thread runs it. Whatever the child does shows as the provider's status and stops no other provider.
"""

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from threading import Event as Flag
from threading import Lock
from typing import Protocol

from gkm.api.errors import GKMError
from gkm.api.topology_settings import TopologyProvider
from gkm.hoststate.child_process import ChildProcess
from gkm.hoststate.escaping import escape
from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff
from gkm.topology.hypernodes import HyperNode
from gkm.topology.providers import Action, Event, Reply
from gkm.topology.quarantine import Quarantined
from msgspec.structs import replace as changed

from gkm_operator.hypernodes.providers.intake import HyperNodeSet, Refused
from gkm_operator.hypernodes.providers.mailbox import READS, Mailbox, ProvidersView
from gkm_operator.hypernodes.providers.messages import MAX_FAILURE, Start, Written
from gkm_operator.hypernodes.providers.session import ChildLimits, Session
from gkm_operator.hypernodes.providers.status import ProviderFault, ProviderStatus, State

_LOG = logging.getLogger(__name__)
_PROGRAM = (sys.executable, "-I", "-B", "-m", "gkm_operator.hypernodes.providers.child")
_PASSED = frozenset({"PATH", "LANG", "MALLOC_ARENA_MAX", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR"})
_PROXIES = frozenset({"http_proxy", "https_proxy", "no_proxy"})
_MAX_FAULTS = 16
_LOOK_SECONDS = 0.5
TERM_SECONDS, KILL_SECONDS = 1.0, 2.0
BACKOFF = Backoff(2.0, 300.0)
"""Pauses before a start: at least a second."""


class ProviderSecrets(Protocol):
    """Secrets of GKM's namespace."""

    def read(self, secret: str) -> Mapping[str, bytes]:
        """Return the data of a Secret, decoded. It is read before each start of a provider that names one.

        Raises:
            GKMError: it cannot be read.
        """


class Cluster(Protocol):
    """What the controllers know of the cluster."""

    def awaited(self, provider: str) -> str:
        """Return what a provider reads of the cluster that is not in the view yet, as a predicate; "" for nothing."""

    def written(self) -> Written:
        """Return the names of domains that schedulers see."""


class ProviderObserver(Protocol):
    """Sees what providers send and how they are. Called from the threads of the providers; it must not block."""

    def hypernodes_changed(self, provider: str) -> None:
        """The HyperNodes of a provider have changed, or it has sent an event again."""

    def status_changed(self, provider: str, status: ProviderStatus) -> None:
        """The status of a provider has changed."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all providers share."""

    path: str
    credentials: ProviderSecrets
    observer: ProviderObserver
    cluster: Cluster
    view: ProvidersView
    backoff: Backoff = BACKOFF
    clock: Callable[[], float] = time.time


class Supervisor:
    """An external provider. `run` belongs to one thread, the rest is thread-safe."""

    def __init__(self, provider: TopologyProvider, shared: Surroundings, limits: ChildLimits | None = None) -> None:
        self.name = provider.name
        self._provider = provider
        self._shared = shared
        self._limits = replace(
            limits or ChildLimits(provider.memory),
            max_memory_bytes=provider.memory,
            stale=provider.stale_seconds,
        )
        self._status = ProviderStatus(provider.name, State.STARTING)
        self._set = HyperNodeSet()
        self._serves = False
        """Whether the present child has sent a snapshot."""
        self._mailbox: Mailbox | None = None
        self._stopping = Flag()
        self._lock = Lock()
        self._ended: ChildProcess | None = None

    @property
    def status(self) -> ProviderStatus:
        """The present status."""
        return self._status

    def hypernodes(self) -> tuple[HyperNode, ...]:
        """Return the last good HyperNodes, without order."""
        with self._lock:
            return tuple(self._set.hypernodes.values())

    def quarantined(self) -> tuple[Quarantined, ...]:
        """Return the nodes that the last snapshot quarantines."""
        with self._lock:
            return self._set.quarantined

    def reply(self, reply: Reply) -> None:
        """Send the error of an event to the provider; without a child it is lost."""
        with self._lock:
            if self._mailbox is not None:
                self._mailbox.reply(reply)

    def stop(self) -> None:
        """Ask the provider to stop; `run` returns soon after."""
        self._stopping.set()
        with self._lock:
            if self._mailbox is not None:
                self._mailbox.stop()

    def run(self) -> None:
        """Run the provider, again after each failure, until `stop`."""
        failures = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            reason = self._reason_of_end()
            if self._stopping.is_set():
                if reason:
                    _LOG.warning("provider stopped badly", extra=fields(provider=self.name, reason=reason))
                return
            if self._serves and time.monotonic() - began >= self._shared.backoff.cap:
                failures = 0
            failures += 1
            self._serves = False
            pause = self._shared.backoff.pause(failures)
            _LOG.warning("provider failed", extra=fields(provider=self.name, reason=reason, restart_seconds=pause))
            self._set_status(changed(self._status, state=State.FAILED, reason=reason))
            if not self._stopping.wait(pause):
                self._set_status(changed(self._status, restarts=self._status.restarts + 1))

    def _reason_of_end(self) -> str:
        """Run one child; return why it ended, empty if it was asked to."""
        try:
            self._live()
        except ProviderFault as fault:
            return str(fault)
        except GKMError as error:
            return f"has no credentials: {error}"
        except Exception:  # noqa: BLE001 -- the thread must survive, for nothing would restart it
            _LOG.exception("provider cannot be run", extra=fields(provider=self.name))
            return "cannot be run: the log of the controllers says why"
        return ""

    def _live(self) -> None:
        """Run one child to its end.

        Raises:
            ProviderFault, GKMError: it did not start, or did not end because it was asked to.
        """
        if self._ended is not None and self._ended.is_stuck():
            raise ProviderFault("hangs in the kernel since its last end")
        secret = self._provider.credentials_secret
        credentials = dict(self._shared.credentials.read(secret)) if secret else {}
        waited = False
        while awaited := self._shared.cluster.awaited(self.name):
            waited = True
            self._set_status(changed(self._status, state=State.STARTING, reason=awaited))
            if self._stopping.wait(_LOOK_SECONDS):
                return
        start = Start(
            self.name,
            self._provider.config,
            credentials,
            self._shared.path,
            self._provider.memory,
            self._shared.cluster.written() if self.name in READS else Written(),
        )
        try:
            child = ChildProcess(_PROGRAM, _environment())
        except OSError as error:
            raise ProviderFault(f"does not start: {error.strerror}") from error
        self._ended = child
        mailbox = Mailbox(start, self._shared.view)
        status: int | None = None
        try:
            with self._lock:
                self._mailbox = mailbox
                if self._stopping.is_set():
                    mailbox.stop()
            reason = "" if waited else self._status.reason
            self._set_status(changed(self._status, state=State.STARTING, reason=reason))
            Session(child, mailbox, self._limits, self._receive).run()
        finally:
            with self._lock:
                self._mailbox = None
            mailbox.close()
            status = child.end(TERM_SECONDS, KILL_SECONDS)
        if status != 0 or not self._stopping.is_set():
            raise ProviderFault(_described(status))

    def _receive(self, event: Event) -> bool:
        """Apply an event; return whether it counts."""
        faults = tuple(escape(fault[:MAX_FAILURE]) for fault in event.faults[:_MAX_FAULTS])
        if not self._serves and event.action is Action.UPDATE and not event.hypernodes:
            self._set_status(changed(self._status, reason=faults[0] if faults else "", faults=faults))
            return True
        try:
            with self._lock:
                self._set.apply(event, first=not self._serves)
                count = len(self._set.hypernodes)
        except Refused as refused:
            self.reply(refused.reply)
            refusals = self._status.refused + 1
            self._set_status(changed(self._status, refused=refusals, refusal=refused.kind))
            return self._serves
        self._serves = True
        self._set_status(
            changed(
                self._status,
                state=State.SERVING,
                reason="",
                last_sync=self._shared.clock(),
                hypernodes=count,
                faults=faults,
            )
        )
        if event.hypernodes or event.action is Action.SNAPSHOT:
            self._shared.observer.hypernodes_changed(self.name)
        return True

    def _set_status(self, status: ProviderStatus) -> None:
        before, self._status = self._status, status
        if status != before:
            self._shared.observer.status_changed(self.name, status)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name in _PASSED or name.lower() in _PROXIES}


def _described(status: int | None) -> str:
    if status is None:
        return "hangs in the kernel"
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
