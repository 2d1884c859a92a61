"""All external providers of the configuration: a thread and a child process each.

Create it and publish the HyperNodes of the cluster to `view`; then start it. A provider that hangs, raises, floods or
dies changes its own status only.
"""

import time
from collections.abc import Mapping
from threading import Thread

from gkm.api.topology_settings import Topology
from gkm.hoststate.pacing import Backoff
from gkm.topology.hypernodes import HyperNode
from gkm.topology.providers import LABELS, Reply
from gkm.topology.quarantine import Quarantined

from gkm_operator.hypernodes.providers.mailbox import ProvidersView
from gkm_operator.hypernodes.providers.messages import STOP_SECONDS
from gkm_operator.hypernodes.providers.session import ChildLimits
from gkm_operator.hypernodes.providers.status import ProviderStatus
from gkm_operator.hypernodes.providers.supervisor import (
    BACKOFF,
    KILL_SECONDS,
    TERM_SECONDS,
    Cluster,
    ProviderObserver,
    ProviderSecrets,
    Supervisor,
    Surroundings,
)

_MARGIN_SECONDS = 2.0


class ProviderHost:
    """The external providers. Thread-safe."""

    def __init__(
        self,
        settings: Topology,
        credentials: ProviderSecrets,
        observer: ProviderObserver,
        cluster: Cluster,
        *,
        limits: ChildLimits | None = None,
        backoff: Backoff = BACKOFF,
    ) -> None:
        self.view = ProvidersView()
        """What the providers see as `hypernodes`."""
        shared = Surroundings(settings.provider_path, credentials, observer, cluster, self.view, backoff)
        self._supervisors = {
            provider.name: Supervisor(provider, shared, limits)
            for provider in settings.providers
            if provider.name != LABELS
        }
        self._stop_seconds = limits.stop if limits else STOP_SECONDS
        self._threads: list[Thread] = []
        self._deadline: float | None = None

    def start(self) -> None:
        """Start all providers."""
        for name, supervisor in self._supervisors.items():
            thread = Thread(target=supervisor.run, name=f"provider-{name}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def ask_to_stop(self) -> None:
        """Ask all providers to stop, without waiting for them."""
        for supervisor in self._supervisors.values():
            supervisor.stop()
        self._deadline = time.monotonic() + self._stop_seconds + TERM_SECONDS + KILL_SECONDS + _MARGIN_SECONDS

    def stop(self) -> None:
        """Stop all providers and end their children, at most about 12 seconds after they were asked first."""
        if self._deadline is None:
            self.ask_to_stop()
        for thread in self._threads:
            thread.join(max((self._deadline or 0.0) - time.monotonic(), 0))

    def statuses(self) -> Mapping[str, ProviderStatus]:
        """Return the status of each external provider."""
        return {name: supervisor.status for name, supervisor in self._supervisors.items()}

    def unserved(self) -> tuple[str, ...]:
        """Return the providers that have sent no snapshot since this host was created."""
        return tuple(name for name, status in self.statuses().items() if status.last_sync is None)

    def hypernodes(self, provider: str) -> tuple[HyperNode, ...]:
        """Return the last good HyperNodes of a provider, none before its first snapshot.

        Raises:
            KeyError: it is no external provider of the configuration.
        """
        return self._supervisors[provider].hypernodes()

    def quarantined(self, provider: str) -> tuple[Quarantined, ...]:
        """Return the nodes that the last snapshot of a provider quarantines."""
        return self._supervisors[provider].quarantined()

    def reply(self, provider: str, reply: Reply) -> None:
        """Send an error of the API server to the provider whose event it was, after the retries."""
        self._supervisors[provider].reply(reply)
