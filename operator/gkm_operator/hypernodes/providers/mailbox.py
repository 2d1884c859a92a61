"""What the controllers send to a child: its start, changes of the view, replies, and the request to stop.

The view is pushed by names: a child that does not read gets each changed HyperNode, Node or report of an agent once, in
its last state. So a mailbox is bounded by the cluster and MAX_REPLIES, however slow the child is. A built-in provider
gets what it reads, any other one HyperNodes and Nodes.
"""

import os
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from threading import Lock

from gkm.topology.hypernodes import HyperNode
from gkm.topology.providers import ClusterNode, Reply

from gkm_operator.hypernodes.providers.messages import AgentReport, Key, Start, ToChild, encode

MAX_REPLIES = 1_024
MAX_VIEW = 200_000
"""HyperNodes, Nodes and reports that children see; further ones are left out."""
_NAMES_EACH = 10_000
"""Names, members, GUIDs and parts of reports in one message, so that it stays small."""
_PART_BYTES = 200
READS: Mapping[str, frozenset[str]] = {
    "infiniband": frozenset({"Node", "Ports", "Survey"}),
    "lldp": frozenset({"Node", "Neighbors"}),
    "ufm": frozenset({"Node", "Ports"}),
    "tree-file": frozenset(),
}
"""The kinds that built-in providers read."""
_OTHERS_READ = frozenset({"HyperNode", "Node"})

Value = HyperNode | ClusterNode | AgentReport


class ProvidersView:
    """All HyperNodes of the cluster, its Nodes and what agents report, for the children. Thread-safe."""

    def __init__(self) -> None:
        self._values: dict[Key, Value] = {}
        self._mailboxes: set[Mailbox] = set()
        self._lock = Lock()

    def publish(self, changed: Iterable[Value], deleted: Iterable[Key] = ()) -> None:
        """Set and remove values."""
        with self._lock:
            keys: set[Key] = set(deleted)
            for key in keys:
                self._values.pop(key, None)
            for value in changed:
                key = _key(value)
                if key in self._values or len(self._values) < MAX_VIEW:
                    self._values[key] = value
                    keys.add(key)
            for mailbox in self._mailboxes:
                mailbox.change(keys)

    def add(self, mailbox: "Mailbox") -> None:
        """Send everything to a mailbox, and then every change."""
        with self._lock:
            mailbox.change(self._values)
            self._mailboxes.add(mailbox)

    def remove(self, mailbox: "Mailbox") -> None:
        """Send nothing to a mailbox any more."""
        with self._lock:
            self._mailboxes.discard(mailbox)

    def get(self, key: Key) -> Value | None:
        """Return a value."""
        return self._values.get(key)


def _key(value: Value) -> Key:
    if isinstance(value, AgentReport):
        return value.kind, value.name
    return "HyperNode" if isinstance(value, HyperNode) else "Node", value.name


class Mailbox:
    """Messages for one child, which one thread takes. `waiting` becomes readable when there is a message."""

    def __init__(self, start: Start, view: ProvidersView) -> None:
        self._start: Start | None = start
        self._view = view
        self._reads = READS.get(start.name, _OTHERS_READ)
        self._changed: dict[Key, None] = {}
        self._synced = False
        self._replies: deque[Reply] = deque(maxlen=MAX_REPLIES)
        self._stop = self._stop_sent = False
        self._lock = Lock()
        self.waiting = os.eventfd(1, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        view.add(self)

    def close(self) -> None:
        """Send nothing any more."""
        self._view.remove(self)
        with self._lock:
            os.close(self.waiting)
            self.waiting = -1

    def change(self, keys: Iterable[Key]) -> None:
        """Send the present state of those that the provider reads."""
        with self._lock:
            if wanted := [key for key in keys if key[0] in self._reads]:
                self._changed |= dict.fromkeys(wanted)
                self._wake()

    def reply(self, reply: Reply) -> None:
        """Send the error of an event; of more than MAX_REPLIES the oldest are lost."""
        with self._lock:
            self._replies.append(reply)
            self._wake()

    def stop(self) -> None:
        """Ask the child to stop; nothing else is sent any more, except its start."""
        with self._lock:
            self._stop = True
            self._wake()

    @property
    def stopping(self) -> bool:
        """Whether the child is to stop."""
        return self._stop

    def take(self) -> bytes | None:
        """Return the next message, None if no message waits."""
        with self._lock:
            message = self._next()
            if message is None:
                with suppress(BlockingIOError):
                    os.eventfd_read(self.waiting)
        return None if message is None else encode(message)

    def _next(self) -> ToChild | None:
        if self._start is not None:
            message, self._start = ToChild(start=self._start), None
            return message
        if self._stop:
            stopped, self._stop_sent = self._stop_sent, True
            return None if stopped else ToChild(stop=True)
        if self._replies:
            return ToChild(reply=self._replies.popleft())
        return None if self._synced and not self._changed else self._changes()

    def _changes(self) -> ToChild:
        hypernodes: list[HyperNode] = []
        nodes: list[ClusterNode] = []
        observed: list[AgentReport] = []
        deleted: list[Key] = []
        size = 0
        while self._changed and size < _NAMES_EACH:
            key = next(iter(self._changed))
            del self._changed[key]
            value = self._view.get(key)
            size += 1
            if value is None:
                deleted.append(key)
            elif isinstance(value, HyperNode):
                hypernodes.append(value)
                size += len(value.members)
            elif isinstance(value, AgentReport):
                observed.append(value)
                size += len(value.data) // _PART_BYTES
            else:
                nodes.append(value)
                size += len(value.guids)
        synced = not self._changed and not self._synced
        self._synced |= synced
        return ToChild(
            hypernodes=tuple(hypernodes),
            nodes=tuple(nodes),
            observed=tuple(observed),
            deleted=tuple(deleted),
            synced=synced,
        )

    def _wake(self) -> None:
        if self.waiting >= 0:
            os.eventfd_write(self.waiting, 1)
