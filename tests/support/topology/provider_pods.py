"""Providers as their pods run them, in threads of a test: runner, watches, and a ProviderTree in an API in memory."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any

from gkm.api.config import Config
from gkm.api.provider_trees import ProviderTree, ProviderTreeSpec
from gkm.api.topology_settings import Topology, TopologyProvider
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.resources import PROVIDER_TREES
from gkm.topology.hypernodes import HyperNode
from gkm.topology.provider_trees import unpack
from gkm_operator.hypernodes.providers.command import ProviderCode, runner_of
from gkm_operator.hypernodes.providers.runner import ProviderRunner, RunnerPace, TreeObject
from support.host.waiting import until
from support.topology import misbehaving

LONG = 120.0
"""Seconds that only a defect needs."""
PACE = RunnerPace(least=0.01, heartbeat=0.1, start=60.0, stop=20.0, poll=0.02, sources=0.05)


@dataclass
class ProviderPod:
    """A running provider, its object, and the notes that it writes."""

    api: Api
    name: str
    runner: ProviderRunner
    notes_file: Path
    stopped: Flag = field(default_factory=Flag)
    code: int | None = None

    @property
    def object(self) -> ProviderTree:
        return self.api.get(PROVIDER_TREES, self.name)

    @property
    def spec(self) -> ProviderTreeSpec:
        try:
            return self.object.spec
        except ApiError:
            return ProviderTreeSpec()

    def hypernodes(self) -> tuple[HyperNode, ...]:
        return unpack(self.spec.tree).hypernodes if self.spec.tree else ()

    def names(self) -> set[str]:
        return {each.name for each in self.hypernodes()}

    def until(self, probe: Callable[[], Any], what: str) -> Any:  # noqa: ANN401 -- any value
        return until(probe, what, LONG)

    def serves(self) -> None:
        self.until(lambda: self.spec.state == "Serving", f"{self.name} serves; {self.spec}")

    def failed(self) -> str:
        """Wait until the process would have ended, and return why."""
        self.until(lambda: self.code, f"{self.name} fails; {self.spec}")
        assert self.spec.state == "Failed"
        return self.spec.reason

    def notes(self) -> list[str]:
        return self.notes_file.read_text().splitlines() if self.notes_file.exists() else []

    def _run(self) -> None:
        self.code = self.runner.run(self.stopped)


@contextmanager
def pod(
    api: Api,
    settings: TopologyProvider,
    code: ProviderCode,
    config: Config | None = None,
    pace: RunnerPace = PACE,
) -> Iterator[ProviderPod]:
    """Run a provider as its pod does."""
    tree = TreeObject(api, settings.name)
    earlier = tree.read()
    whole = config or Config(topology=Topology(providers=[settings]))
    runner = runner_of(api, whole, settings, code, tree=tree, earlier=earlier, pace=pace)
    running = ProviderPod(api, settings.name, runner, Path(settings.config.get("notes", "/nonexistent")))
    thread = Thread(target=running._run, name=f"pod {settings.name}", daemon=True)
    thread.start()
    try:
        yield running
    finally:
        running.stopped.set()
        thread.join(LONG)
        assert not thread.is_alive()


@contextmanager
def misbehaves(
    api: Api,
    name: str,
    directory: Path,
    *,
    named: str = "",
    pace: RunnerPace = PACE,
    credentials: Path | None = None,
    config: dict[str, Any] | None = None,
    **settings: Any,  # noqa: ANN401 -- any setting
) -> Iterator[ProviderPod]:
    """Run a provider of `misbehaving`, which writes its notes to a directory; `named` is its name, if it is another."""
    provider = TopologyProvider(named or name, config={"notes": str(directory / "notes"), **(config or {})}, **settings)
    code = ProviderCode(f"{misbehaving.__name__}:{name.replace('-', '_')}", credentials=credentials)
    with pod(api, provider, code, pace=pace) as running:
        yield running
