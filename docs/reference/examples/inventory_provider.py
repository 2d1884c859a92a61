"""An example of a topology provider: groups of nodes from an inventory, {"block-1": ["gpu-1", "gpu-2"], …}."""

import json
from pathlib import Path
from threading import Event as Flag

from gkm.topology.hypernodes import HyperNode, Member
from gkm.topology.providers import Action, Event, ProviderFailed


class Inventory:
    name = "inventory"

    def __init__(self, config, credentials):
        self.file = Path(config["file"])
        self.seconds = config.get("intervalSeconds", 30)
        self.stopped = Flag()

    def start(self, events, replies, hypernodes):
        sent = None
        while not self.stopped.is_set():
            found = self.read()
            while replies.get(timeout=0):  # an error: the event was refused, or could not be written
                sent = None
            events.put(Event(Action.UPDATE, ()) if found == sent else Event(Action.SNAPSHOT, found))
            sent = found
            self.stopped.wait(self.seconds)

    def stop(self):
        self.stopped.set()

    def read(self):
        try:
            groups = json.loads(self.file.read_text())
            members = {name: tuple(Member("Node", node) for node in nodes) for name, nodes in groups.items()}
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise ProviderFailed(f"cannot read its inventory: {type(error).__name__}") from None
        return tuple(HyperNode(name, "block", nodes) for name, nodes in members.items())
