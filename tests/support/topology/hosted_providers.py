"""External providers in real children, with limits that a test can wait for."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gkm.api.topology_settings import Topology, TopologyProvider
from gkm.hoststate.pacing import Backoff
from gkm.topology.hypernodes import HyperNode
from gkm.topology.providers import ClusterNode
from gkm_operator.hypernodes.providers.host import ProviderHost
from gkm_operator.hypernodes.providers.messages import AgentReport, Written
from gkm_operator.hypernodes.providers.session import ChildLimits
from gkm_operator.hypernodes.providers.status import ProviderStatus, State
from support.host.waiting import until
from support.topology import misbehaving
from support.topology.provider_package import install

LONG = 120.0
"""Seconds that only a defect needs."""
LIMITS = ChildLimits(0, start=60.0, stop=20.0, rest=0.0)
BACKOFF = Backoff(0.2, 0.4)


@dataclass
class Secrets:
    """Credentials of providers."""

    data: dict[str, dict[str, bytes]] = field(default_factory=dict)

    def read(self, secret: str) -> Mapping[str, bytes]:
        return self.data[secret]


@dataclass
class Cluster:
    """What the controllers know of the cluster."""

    names: Written = Written()  # noqa: RUF009 -- a frozen value
    complete: bool = True
    looks: int = 0

    def awaited(self, _provider: str) -> str:
        self.looks += 1
        return "" if self.complete else "waits for the cluster"

    def written(self) -> Written:
        return self.names


@dataclass
class Seen:
    """What the observer was called with, in its order."""

    statuses: list[tuple[str, ProviderStatus]] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)

    def hypernodes_changed(self, provider: str) -> None:
        self.changes.append(provider)

    def status_changed(self, provider: str, status: ProviderStatus) -> None:
        self.statuses.append((provider, status))


@dataclass
class Hosted:
    """A running host, and the notes that its providers write."""

    host: ProviderHost
    seen: Seen
    notes_file: Path

    def status(self, name: str) -> ProviderStatus:
        return self.host.statuses()[name]

    def until(self, probe: Callable[[], Any], what: str) -> Any:  # noqa: ANN401 -- any value
        return until(probe, what, LONG)

    def serves(self, name: str) -> None:
        self.until(lambda: self.status(name).state is State.SERVING, f"{name} serves; {self.status(name)}")

    def failed(self, name: str) -> str:
        """Wait until a provider has failed, and return why it failed first."""

        def reasons() -> list[str]:
            return [status.reason for of, status in self.seen.statuses if of == name and status.state is State.FAILED]

        self.until(reasons, f"{name} fails")
        return reasons()[0]

    def notes(self) -> list[str]:
        return self.notes_file.read_text().splitlines() if self.notes_file.exists() else []

    def names(self, provider: str) -> set[str]:
        return {each.name for each in self.host.hypernodes(provider)}


@contextmanager
def hosted(
    directory: Path,
    *providers: TopologyProvider,
    limits: ChildLimits = LIMITS,
    secrets: Secrets | None = None,
    view: tuple[HyperNode | ClusterNode | AgentReport, ...] = (),
    path: Path | None = None,
    cluster: Cluster | None = None,
) -> Iterator[Hosted]:
    """Run providers; those of `misbehaving` are installed."""
    if path is None:
        path = directory / "packages"
        install(path, Path(misbehaving.__file__).read_text(), *_names())
    settings = Topology(providers=list(providers), provider_path=str(path))
    seen = Seen()
    host = ProviderHost(settings, secrets or Secrets(), seen, cluster or Cluster(), limits=limits, backoff=BACKOFF)
    host.view.publish(view)
    host.start()
    try:
        yield Hosted(host, seen, directory / "notes")
    finally:
        host.stop()


def misbehaves(name: str, directory: Path, **settings: Any) -> TopologyProvider:  # noqa: ANN401 -- any setting
    """Return the configuration of a provider of `misbehaving`, which writes its notes to a directory."""
    config = {"notes": str(directory / "notes"), **settings.pop("config", {})}
    return TopologyProvider(name, config=config, **settings)


def _names() -> list[str]:
    return [
        name.replace("_", "-")
        for name, value in vars(misbehaving).items()
        if isinstance(value, type) and issubclass(value, misbehaving.Base) and value is not misbehaving.Base
    ]
