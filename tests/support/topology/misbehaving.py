# ruff: noqa: N801, ANN401, ARG002 -- classes have the names of providers, which use a part of the contract
"""Providers that do one wrong thing each, and one that does what `config` says."""

import threading
import time
from pathlib import Path
from typing import Any

from gkm.topology.hypernodes import HyperNode, Member
from gkm.topology.providers import Action, Event, ProviderFailed
from gkm.topology.quarantine import Quarantined, QuarantineReason


def group(name: str, *nodes: str) -> HyperNode:
    return HyperNode(name, "block", tuple(Member("Node", node) for node in nodes))


ONE = Event(Action.SNAPSHOT, (group("one", "n1"),))


class Base:
    name = "test"

    def __init__(self, config: Any, credentials: Any) -> None:
        self.config = config
        self.credentials = credentials
        self.stopped = threading.Event()

    def start(self, events: Any, replies: Any, hypernodes: Any) -> None:
        events.put(ONE)
        self.then(events, replies, hypernodes)
        self.stopped.wait()

    def then(self, events: Any, replies: Any, hypernodes: Any) -> None:
        pass

    def stop(self) -> None:
        self.stopped.set()

    def note(self, text: str) -> None:
        with Path(self.config["notes"]).open("a") as file:
            file.write(f"{text}\n")


class serves(Base):
    def stop(self) -> None:
        if "notes" in self.config:
            self.note("stopped")
        super().stop()


class hangs_in_start(Base):
    def start(self, *_: Any) -> None:
        time.sleep(600)


class hangs_in_stop(Base):
    def stop(self) -> None:
        time.sleep(600)


class sends_no_event(Base):
    def then(self, events: Any, *_: Any) -> None:
        events.put({"serial": "MT1234X00001"})


class raises(Base):
    def then(self, *_: Any) -> None:
        raise ValueError("serial number MT1234X00001")


class raises_in_thread(Base):
    def then(self, *_: Any) -> None:
        def fail() -> None:
            raise KeyError("serial number MT1234X00001")

        threading.Thread(target=fail).start()


class raises_in_stop(Base):
    def stop(self) -> None:
        raise ValueError("serial number MT1234X00001")


class states_why(Base):
    def then(self, *_: Any) -> None:
        raise ProviderFailed("cannot read its \x1b[31mserver")


class promises(Base):
    stale_seconds = 1.0


class waits(Base):
    def start(self, events: Any, *_: Any) -> None:
        events.put(Event(Action.UPDATE, (), ("waits for a\nsource",)))
        while not self.stopped.wait(0.05) and not Path(self.config["notes"]).exists():
            pass
        events.put(ONE)
        self.stopped.wait()


class quarantines(Base):
    def start(self, events: Any, *_: Any) -> None:
        bad = Quarantined("n2", QuarantineReason.EQUAL_CABLES, "equal\ncables")
        events.put(Event(Action.SNAPSHOT, (group("one", "n1"),), (), (bad,)))
        events.put(Event(Action.UPDATE, (group("two", "n3"),)))
        self.stopped.wait()


class floods(Base):
    def then(self, events: Any, *_: Any) -> None:
        count = 0
        while not self.stopped.is_set():
            events.put(Event(Action.UPDATE, (group("one", "n1", f"f{count % 9}"),)))
            count += 1
            if "notes" in self.config and count % 100 == 0:
                self.note(str(count))


class sends_after_stop(Base):
    def then(self, events: Any, *_: Any) -> None:
        self.stopped.wait()
        events.put(Event(Action.SNAPSHOT, ()))


class sends_invalid(Base):
    def then(self, events: Any, replies: Any, _: Any) -> None:
        events.put(Event(Action.CREATE, (group("bad\nname", "n2"),)))
        events.put(Event(Action.CREATE, (group("two", "n1"),)))
        events.put(Event(Action.CREATE, (group("three", "n3"),)))
        for _ in range(2):
            reply = replies.get(20)
            self.note(f"{reply.name!r} {reply.error}")


class begins_with_an_update(Base):
    def start(self, events: Any, replies: Any, _: Any) -> None:
        events.put(Event(Action.UPDATE, (group("one", "n1"),)))
        self.note(replies.get(20).error)
        events.put(ONE)
        self.stopped.wait()


class watches(Base):
    def then(self, events: Any, replies: Any, hypernodes: Any) -> None:
        self.note(f"there {sorted(each.name for each in hypernodes.list())}")
        changes = hypernodes.changes()
        self.note("watching")
        for name in changes:
            self.note(f"changed {name} {hypernodes.get(name)}")


class sends_again(Base):
    def then(self, events: Any, replies: Any, *_: Any) -> None:
        while True:
            reply = replies.get()
            self.note(f"{reply.name} {reply.error}")
            events.put(ONE)


class hears(Base):
    def then(self, events: Any, replies: Any, _: Any) -> None:
        self.note("listens")
        while True:
            reply = replies.get()
            self.note(f"{reply.name} {reply.error}")


class shows_secrets(Base):
    def then(self, *_: Any) -> None:
        self.note(repr(sorted(self.credentials.items())))


class returns_at_once(Base):
    def start(self, events: Any, *_: Any) -> None:
        def work() -> None:
            events.put(ONE)
            self.stopped.wait()
            self.note("thread ended")

        threading.Thread(target=work).start()
