"""A provider in this process, in a thread, with events, replies and a view that honor the contract."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Empty, Queue
from threading import Event as Flag
from threading import Thread

from gkm.topology.providers import ClusterNode, Event, Provider, ProviderStopped, Reply
from gkm_operator.hypernodes.providers.view import LiveView
from support.host.waiting import scaled

WAIT_SECONDS = scaled(60.0)


@dataclass
class ProviderRun:
    """What a running provider has sent; `error` is what it has raised."""

    provider: Provider
    view: LiveView = field(default_factory=LiveView)
    error: BaseException | None = None
    _events: "Queue[Event]" = field(default_factory=lambda: Queue(1_024))
    _replies: "Queue[Reply]" = field(default_factory=Queue)
    _stopped: Flag = field(default_factory=Flag)

    @classmethod
    @contextmanager
    def of(cls, provider: Provider, *nodes: str) -> Iterator["ProviderRun"]:
        """Run a provider in a cluster with these nodes."""
        run = cls(provider)
        run.view.publish(map(ClusterNode, nodes))
        with run.running():
            yield run

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            self.view.stop()
            self.provider.stop()
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive()

    def put(self, event: Event) -> None:
        if self._stopped.is_set():
            raise ProviderStopped
        self._events.put(event, timeout=WAIT_SECONDS)

    def get(self, timeout: float | None = None) -> Reply | None:
        try:
            return self._replies.get(timeout=timeout) if timeout else self._replies.get_nowait()
        except Empty:
            return None

    def reply(self, reply: Reply) -> None:
        self._replies.put(reply)

    def next(self, wanted: Callable[[Event], bool] = lambda _: True) -> Event:
        """Return the next event that is wanted."""
        while True:
            event = self._events.get(timeout=WAIT_SECONDS)
            if wanted(event):
                return event

    def failure(self) -> BaseException:
        """Return what the provider raises."""
        while self.error is None and not self._stopped.wait(0.01):
            pass
        assert self.error is not None
        return self.error

    def _run(self) -> None:
        try:
            self.provider.start(self, self, self.view)
        except ProviderStopped:
            pass
        except Exception as error:  # noqa: BLE001 -- what a provider raises is what tests look at
            self.error = error
