"""A provider that sends what a file has: each line is a domain with its nodes, or a word that ends it."""

import threading
from pathlib import Path
from typing import Any

from gkm.topology.hypernodes import HyperNode, Member
from gkm.topology.providers import Action, Event, ProviderFailed


class File:
    """Sends the file again whenever it changes; `fail` breaks off in the middle of a snapshot."""

    name = "file"

    def __init__(self, config: Any, _credentials: Any) -> None:  # noqa: ANN401 -- any configuration
        self.path = Path(config["path"])
        self.stopped = threading.Event()

    def start(self, events: Any, replies: Any, hypernodes: Any) -> None:  # noqa: ANN401, ARG002 -- the contract's
        sent = ""
        while not self.stopped.wait(0.05):
            text = self.path.read_text() if self.path.exists() else ""
            if text and text != sent:
                sent = text
                self._send(events, text)

    def stop(self) -> None:
        self.stopped.set()

    @staticmethod
    def _send(events: Any, text: str) -> None:  # noqa: ANN401 -- the contract's
        found = []
        for line in text.splitlines():
            if line == "fail":
                raise ProviderFailed("cannot read its file")
            name, *nodes = line.split()
            found.append(HyperNode(name, "block", tuple(Member("Node", node) for node in nodes)))
        events.put(Event(Action.SNAPSHOT, tuple(found)))


def file(config: Any, credentials: Any) -> File:  # noqa: ANN401 -- the contract's
    return File(config, credentials)
