"""Receives the events of a provider, applies them to its tree, and passes replies back.

An event is applied at once to the set of HyperNodes, as a whole or not at all, without a queue. The writer takes the
last state when it can write: an API server that is away costs no memory and stops no provider.
"""

import time
from collections import deque
from threading import Condition

import msgspec
from gkm.api.meta import FALSE, timestamp
from gkm.api.provider_trees import ACCEPTED, MAX_FAULTS, MAX_TEXT, ProviderTreeSpec, ProviderTreeStatus, SpecState
from gkm.hoststate.escaping import escape
from gkm.topology.provider_trees import HyperNodeSet, Refused, TreeTooLarge, pack
from gkm.topology.providers import Action, Event, ProviderStopped, Reply
from msgspec import structs

MAX_REPLIES = 1_024
MAX_EVENT_BYTES = 64 << 20
UNSTATED_END = "ended without a reason: the last state of its container has it (kubectl describe pods -n gkm-system)"
_NOW = "; now: "
"""Stands in a reason between the cause of the last failure and what the provider waits for."""
_EVENT = msgspec.json.Decoder(Event)


class ProviderChannel:
    """The channel between a provider and its runner (gkm.topology.providers.Events and Replies). Thread-safe.

    `earlier` is the last write of the earlier process: its tree and its revision stay in use, and its failure stays
    until the provider serves. Otherwise a provider that fails again and again would be Starting whenever it starts.
    """

    def __init__(self, earlier: ProviderTreeSpec) -> None:
        self._unserved: SpecState = "Failed" if earlier.state == "Failed" else "Starting"
        self._cause = _cause(earlier)
        self._spec = structs.replace(
            earlier, state=self._unserved, reason=self._cause, faults=[], refused=0, refusal=""
        )
        self._set = HyperNodeSet()
        self._serves = False
        self._tree_changed = False
        self._fits = True
        self._observed = earlier.observed_time
        self._delivered: object = None
        self._replies: deque[Reply] = deque(maxlen=MAX_REPLIES)
        self._stopped = False
        self._condition = Condition()
        self.heard_at = time.monotonic()
        """When the last event that counts came."""
        self.version = 0
        """Grows with each change of what is to be written."""

    def put(self, event: Event) -> None:
        """Apply an event from the provider to its tree; raise ValueError if it is too large or of another type."""
        data = msgspec.json.encode(event)
        if len(data) > MAX_EVENT_BYTES:
            raise ValueError(f"an event of {len(data)} bytes; {MAX_EVENT_BYTES} are possible")
        try:
            # A copy: the provider may change what it has sent.
            copied = _EVENT.decode(data)
        except msgspec.DecodeError:
            raise ValueError("no gkm.topology.providers.Event, or one with values of other types") from None
        with self._condition:
            if self._stopped:
                raise ProviderStopped
            self._receive(copied)

    def get(self, timeout: float | None = None) -> Reply | None:
        """Return the next reply to the provider; None after `timeout` seconds. Raise ProviderStopped after `stop`."""
        with self._condition:
            self._condition.wait_for(lambda: self._replies or self._stopped, timeout)
            if self._stopped:
                raise ProviderStopped
            return self._replies.popleft() if self._replies else None

    def stop(self) -> None:
        """End every waiting call of the provider; events after that are ignored."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()

    @property
    def serves(self) -> bool:
        """Return whether the provider has sent a valid snapshot of its tree to this process."""
        return self._serves

    def waits(self, reason: str) -> None:
        """Record what the provider waits for, "" if it does not; the cause of its failure stays until it serves."""
        with self._condition:
            self._wait(reason)

    def expects(self, stale_seconds: int) -> None:
        """Record the age in seconds at which the provider's tree is stale."""
        with self._condition:
            self._change(stale_seconds=stale_seconds)

    def fail(self, reason: str) -> None:
        """Record the reason why the provider failed, for the ProviderTree."""
        with self._condition:
            self._change(state="Failed", reason=_text(reason))

    def take(self) -> tuple[int, ProviderTreeSpec]:
        """Return the spec of the ProviderTree to write now, with its version.

        A tree that does not fit is refused; the last one stays, and becomes older.
        """
        with self._condition:
            if self._tree_changed:
                self._tree_changed = False
                self._fits = self._take_tree()
            if self._fits:
                self._spec = structs.replace(self._spec, observed_time=self._observed)
            return self.version, structs.replace(self._spec, heartbeat_time=timestamp())

    def answer(self, status: ProviderTreeStatus) -> None:
        """Pass the controllers' status of the present revision to the provider as replies, once."""
        with self._condition:
            if status.observed_revision != self._spec.revision:
                return
            condition = status.condition(ACCEPTED)
            set_aside = condition.message if condition is not None and condition.status == FALSE else ""
            found = (status.observed_revision, set_aside, status.refused)
            if found == self._delivered:
                return
            self._delivered = found
            if set_aside:
                self._reply(Reply("", set_aside))
            for each in status.refused:
                self._reply(Reply(each.name, each.error))

    def wait(self, version: int, seconds: float) -> None:
        """Wait until the spec to write is newer than `version`, for at most `seconds`."""
        with self._condition:
            self._condition.wait_for(lambda: self.version > version or self._stopped, seconds)

    def _receive(self, event: Event) -> None:
        faults = [_text(fault) for fault in event.faults[:MAX_FAULTS]]
        if not self._serves and event.action is Action.UPDATE and not event.hypernodes:
            self.heard_at = time.monotonic()
            self._wait(faults[0] if faults else "", faults=faults)
            return
        try:
            self._set.apply(event, first=not self._serves)
        except Refused as refused:
            self._refuse(refused.kind, refused.reply)
            if self._serves:
                self.heard_at = time.monotonic()
            return
        self.heard_at = time.monotonic()
        self._serves = True
        self._tree_changed |= bool(event.hypernodes) or event.action is Action.SNAPSHOT
        # The time alone is written with the next heartbeat.
        self._observed = timestamp()
        self._unserved, self._cause = "Starting", ""
        self._change(state="Serving", reason="", faults=faults)

    def _wait(self, reason: str, **fields: object) -> None:
        text = _NOW.join(filter(None, (self._cause, reason)))[:MAX_TEXT]
        self._change(state=self._unserved, reason=text, **fields)

    def _take_tree(self) -> bool:
        """Put the HyperNodes into the object; return whether they fit."""
        hypernodes = self._set.hypernodes.values()
        try:
            tree = pack(hypernodes, self._set.quarantined)
        except TreeTooLarge as error:
            self._refuse("the tree does not fit into one object", Reply("", str(error)))
            return False
        nodes = sum(member.kind == "Node" for each in hypernodes for member in each.members)
        # A tree that is sent again, for a refused HyperNode, is the same one: a new revision would have a new reply.
        revision = self._spec.revision + (tree != self._spec.tree)
        self._change(tree=tree, revision=revision, hypernodes=len(self._set.hypernodes), nodes=nodes)
        return True

    def _refuse(self, kind: str, reply: Reply) -> None:
        self._reply(reply)
        self._change(refused=self._spec.refused + 1, refusal=_text(kind))

    def _reply(self, reply: Reply) -> None:
        self._replies.append(reply)
        self._condition.notify_all()

    def _change(self, **fields: object) -> None:
        before, self._spec = self._spec, structs.replace(self._spec, **fields)
        if self._spec != before or self._tree_changed:
            self.version += 1
            self._condition.notify_all()


def _cause(earlier: ProviderTreeSpec) -> str:
    """Return why the provider failed or ended before it served again; "" if it did not."""
    if earlier.state == "Failed":
        return earlier.reason.partition(_NOW)[0]
    is_unstated = earlier.state == "Serving" or earlier.reason.startswith(UNSTATED_END)
    return UNSTATED_END if is_unstated else ""


def _text(text: str) -> str:
    return escape(text[:MAX_TEXT])[:MAX_TEXT]
