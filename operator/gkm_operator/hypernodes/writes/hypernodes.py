"""Writes HyperNodes: only the difference, one request at a time, in an order that is valid after each of them.

Touches no object of another source. Before it writes, it lists the objects of the API server: each request names the
version that it was decided from, and the first failure ends the pass.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from gkm.api.hypernodes import HyperNodeObject, HyperNodeSpec
from gkm.api.topology_status import TopologyReason
from gkm.hoststate.logs import fields
from gkm.kube.api import Api, ListSelector
from gkm.kube.errors import ApiError
from gkm.kube.resources import HYPERNODES
from gkm.kube.workqueue import Retry
from gkm.topology.hypernodes import SOURCE_LABEL, HyperNode
from gkm.topology.trees import hypernode_objects
from gkm.topology.trees.conflicts import Conflict, ConflictKind, compatible, conflicts
from gkm.topology.trees.hypernode_objects import SELECTED, is_ours, value
from gkm.topology.trees.volcano import manifest
from gkm.topology.trees.write_order import Write, writes_around

from gkm_operator import metrics
from gkm_operator.hypernodes.findings import Blocked
from gkm_operator.hypernodes.watcher import TopologyWatcher

_LOG = logging.getLogger(__name__)
_ATTEMPTS = 5
REFUSED_SECONDS = 300.0
FAILED_SECONDS = 60.0
"""As REFUSED_SECONDS, for a webhook that fails: it may be back in a moment."""
PASS_SECONDS = 10.0
"""A pass writes at least this long, even if the wanted tree changes meanwhile: each pass begins with a list of all
HyperNodes, and a single node that flaps makes a new tree every few seconds."""
MAX_REFUSED = 20
"""Limit of refused HyperNodes in a pass; with more, all are probably refused, for example by a missing right."""
_REFUSALS = frozenset({400, 403, 413, 422})
_SERVER_ERROR = 500
QUIET_SECONDS = 60.0
"""A request arrives within this time, or never: its client waits 25 s at most for an answer, and the API server ends a
request after 60 s (--request-timeout). Its version protects one object, but not the tree."""
CONTEST_SECONDS = 300.0
"""A HyperNode that another writer changes again within this time after a repair is contested."""


@dataclass(slots=True)
class OwnWrites:
    """Remembers how the API server stored this process's writes, and when it repaired a change by another writer.

    A change is repaired once, then left alone for a while. Two writers that both repair one object would write forever,
    and each write makes Volcano's scheduler build its tree anew.
    """

    _specs: dict[str, HyperNodeSpec] = field(default_factory=dict)
    _repaired: dict[str, float] = field(default_factory=dict)

    def answered(self, name: str, stored: HyperNodeObject | None) -> None:
        """Record a HyperNode as the API server stored it; None after its deletion."""
        if stored is None:
            self._specs.pop(name, None)
        else:
            self._specs[name] = stored.spec

    def contested(self, objects: Mapping[str, HyperNodeObject], now: float) -> tuple[str, ...]:
        """Return the names of HyperNodes that another writer changed again soon after GKM repaired them.

        `objects` are those of a list, which never lags behind a write. `now` is monotonic, in seconds. The first change
        is recorded as repaired at `now`: the caller writes what is wanted.
        """
        self._repaired = {name: at for name, at in self._repaired.items() if now - at < CONTEST_SECONDS}
        changed = [*self._changed(objects)]
        again = tuple(name for name in changed if name in self._repaired)
        self._repaired |= dict.fromkeys(changed, now)
        for name in changed:
            self.answered(name, None)
        return again

    def _changed(self, objects: Mapping[str, HyperNodeObject]) -> Iterable[str]:
        """Yield ours with another spec, or that are gone. An object without our label is another source's."""
        for name, spec in self._specs.items():
            found = objects.get(name)
            if found is None or (is_ours(found) and found.spec != spec):
                yield name


@dataclass(frozen=True, slots=True)
class _Refusal:
    """`wanted` is not written again before `until`: the API server refuses it, or another writer contests it."""

    wanted: HyperNode | None
    message: str
    until: float
    contested: bool = False


@dataclass(frozen=True, slots=True)
class Server:
    """The HyperNodes as the API server has them. `unreadable` objects are treated as objects of other owners."""

    objects: dict[str, HyperNodeObject]
    unreadable: frozenset[str]

    def version(self, name: str) -> str:
        """Return the resourceVersion of a HyperNode, "" if it does not exist."""
        found = self.objects.get(name)
        return found.metadata.resource_version if found else ""


class HyperNodeWriter:
    """Writes GKM's HyperNodes. Only one thread may use it; `pace` waits until the next request may be sent.

    A HyperNode that is refused stays as it is for REFUSED_SECONDS, unless another one of its name is wanted. Meanwhile
    the others are written around it: gkm.topology.write_order. A HyperNode that another writer changes again after a
    repair stays as it is for CONTEST_SECONDS.
    """

    def __init__(
        self,
        api: Api,
        watcher: TopologyWatcher,
        levels: Iterable[str],
        *,
        pace: Callable[[], bool],
    ) -> None:
        self.conflicts: tuple[Conflict, ...] = ()
        self.yielding: tuple[str, ...] = ()
        """The names of GKM's HyperNodes that are not written, or lack members, beside HyperNodes of other owners."""
        self.others: Mapping[str, int] = {}
        """The number of HyperNodes of each other source; the source "" has no label."""
        self.quiet_until = 0.0
        """No request is sent before this monotonic time: one of an earlier leader could still arrive."""
        self._api = api
        self._watcher = watcher
        self._levels = list(levels)
        self._pace = pace
        self._clock = time.monotonic
        self._refused: dict[str, _Refusal] = {}
        self._own = OwnWrites()
        self._names: AbstractSet[str] = frozenset()
        self._sent = self._unanswered = ("", "")
        """The name and the version of the last request, and of a request that may still arrive until `_until`."""
        self._until = 0.0
        self._changes_of_others = 0
        watcher.hypernode_changed.append(self._changed)

    @property
    def refusals(self) -> Mapping[str, str]:
        """Return the messages by which the API server refuses HyperNodes now, by their names."""
        return {name: refusal.message for name, refusal in sorted(self._refused.items()) if not refusal.contested}

    @property
    def contested(self) -> tuple[str, ...]:
        """Return the names of HyperNodes that GKM leaves alone because another writer keeps changing them."""
        return tuple(sorted(name for name, refusal in self._refused.items() if refusal.contested))

    @property
    def is_quiet(self) -> bool:
        """Return whether no request of this or an earlier leader can still arrive."""
        return self._clock() >= max(self.quiet_until, self._until)

    def write(self, wanted: Mapping[str, HyperNode], is_current: Callable[[], bool]) -> None:
        """Write the HyperNodes that differ from `wanted` to the API server.

        Raises:
            Blocked: requests of an earlier leader may still arrive.
            ApiError, Retry: the pass ended early; the next one decides anew. A pass of PASS_SECONDS whose `wanted` is
            outdated also ends early. Until then it writes on: each write is valid after the one before for any wanted
            tree, and the guard has approved both trees.
        """
        unreadable = frozenset(name for _, name in self._watcher.hypernodes.unreadable)
        watched = Server({found.name: found for found in self._watcher.hypernodes.values()}, unreadable)
        if not self._decide(watched, wanted):
            return
        self._wait(self.quiet_until, "an earlier leader")
        before = self._changes_of_others
        # The watch may lag, behind this process's own requests too. A list never does.
        server = self._list()
        self._hold_contested(server, wanted)
        writes = self._decide(server, wanted)
        name, version = self._unanswered
        # A write of the same object, or another version of it, makes the late request conflict.
        if writes and writes[0].hypernode.name != name and server.version(name) == version:
            self._wait(self._until, "this process")
        end = self._clock() + PASS_SECONDS
        for write in writes:
            if not (self._pace() and self._changes_of_others == before and (is_current() or self._clock() < end)):
                raise Retry(
                    "these writes are obsolete: another tree is wanted, or HyperNodes of other sources have changed"
                )
            if refusal := self._send(write, server.objects):
                name = write.hypernode.name
                until = self._clock() + (FAILED_SECONDS if refusal.status >= _SERVER_ERROR else REFUSED_SECONDS)
                self._refused[name] = _Refusal(wanted.get(name), f"HyperNode {name}: {refusal.message}", until)
                # Each pass refuses one more, and their number is limited.
                self.write(wanted, is_current)
                return
        if writes:
            _LOG.info("HyperNodes written", extra=fields(requests=len(writes), hypernodes=len(wanted)))

    def _wait(self, until: float, sender: str) -> None:
        if (rest := until - self._clock()) > 0:
            raise Blocked(
                TopologyReason.WRITING, f"waits until a late request of {sender} can no longer arrive", after=rest
            )

    def _changed(self, old: HyperNodeObject | None, new: HyperNodeObject | None) -> None:
        """Count the changes of others that can make the next write of a pass invalid."""
        for found in (old, new):
            if found is not None and not is_ours(found):
                names = {found.name, *(name for kind, name in value(found).members if kind == "HyperNode")}
                self._changes_of_others += not names.isdisjoint(self._names)

    def _hold_contested(self, server: Server, wanted: Mapping[str, HyperNode]) -> None:
        now = self._clock()
        for name in self._own.contested(server.objects, now):
            _LOG.warning(
                "another writer changes a HyperNode again and again, GKM leaves it alone",
                extra=fields(hypernode=name, seconds=CONTEST_SECONDS),
            )
            self._refused[name] = _Refusal(wanted.get(name), "", now + CONTEST_SECONDS, contested=True)

    def _decide(self, server: Server, wanted: Mapping[str, HyperNode]) -> list[Write]:
        foreign = hypernode_objects.foreign(server.objects.values())
        self.others = Counter(server.objects[name].labels.get(SOURCE_LABEL, "") for name in foreign)
        found = conflicts(wanted, foreign, server.unreadable)
        foreign |= {name: HyperNode(name, "", ()) for name in server.unreadable}
        current = hypernode_objects.own(server.objects.values(), self._levels)
        if selecting := sum(SELECTED in hypernode.members for hypernode in current.values()):
            _LOG.warning("members that others added to HyperNodes are removed", extra=fields(hypernodes=selecting))
        self._names = wanted.keys() | current.keys()
        now = self._clock()
        self._refused = {
            name: refusal
            for name, refusal in self._refused.items()
            if refusal.wanted == wanted.get(name) and now < refusal.until
        }
        contested = [Conflict(ConflictKind.CHANGED_BY_OTHERS, name) for name in self.contested]
        self.conflicts = tuple(sorted([*found, *contested]))
        adopted = {name for each in foreign.values() for kind, name in each.members if kind == "HyperNode"}
        missing = {name: HyperNode(name, "", ()) for name in self._refused if name not in current}
        written = compatible(wanted, foreign | missing)
        self.yielding = tuple(sorted(name for name, one in wanted.items() if written.get(name) != one))
        return writes_around(current, written, self._refused.keys(), adopted)

    def _list(self, name: str = "") -> Server:
        """Return all HyperNodes, or the one of this name."""
        selector = ListSelector(fields=f"metadata.name={name}" if name else "")
        objects: dict[str, HyperNodeObject] = {}
        unreadable: set[str] = set()
        for page in self._api.list_pages(HYPERNODES, selector):
            objects |= {entry.name: entry.value for entry in page.entries}
            unreadable.update(name for _, name in page.unreadable)
        return Server(objects, frozenset(unreadable))

    def _send(self, write: Write, objects: dict[str, HyperNodeObject]) -> ApiError | None:
        """Send a request, and replace the object by the answer, whose version the next request of it names.

        Return the error if the API server, or a policy or webhook of the cluster, does not accept the HyperNode.
        """
        name = write.hypernode.name
        found = objects.pop(name, None)
        try:
            self._sent = name, ""
            if write.action == "create":
                objects[name] = self._api.create(HYPERNODES, manifest(write.hypernode))
            elif found is None:
                raise Retry("a HyperNode that GKM was changing no longer exists")
            elif (answer := self._change(write, found)) is not None:
                objects[name] = answer
            self._own.answered(name, objects.get(name))
        except ApiError as error:
            if error.conflict or error.not_found or error.expired:
                raise Retry("a HyperNode has changed meanwhile") from error
            refused = error.definite and (error.status in _REFUSALS or error.status >= _SERVER_ERROR)
            if refused and len(self._refused) < MAX_REFUSED:
                return error
            if not error.definite:
                self._unanswered, self._until = self._sent, self._clock() + QUIET_SECONDS
                self._own.answered(name, None)
            raise
        metrics.TOPOLOGY_CHANGES.labels("HyperNode", write.action).inc()
        return None

    def _change(self, write: Write, found: HyperNodeObject) -> HyperNodeObject | None:
        """Update or delete an object; return the answer to an update.

        Volcano's own controller writes the status of a HyperNode after each change of it, so its version is often
        newer. That is no conflict while spec and labels are the same as in the decision.
        """
        for attempt in range(_ATTEMPTS):
            if attempt and not self._pace():
                break
            version = found.metadata.resource_version
            self._sent = found.name, version
            try:
                if write.action == "update":
                    return self._api.merge(HYPERNODES, found.name, _patch(write.hypernode, found))
                self._api.delete(HYPERNODES, found.name, uid=found.metadata.uid, resource_version=version)
            except ApiError as error:
                fresh = self._list(found.name).objects.get(found.name) if error.conflict else None
                if fresh is None or not _is_same(fresh, found):
                    raise
                found = fresh
            else:
                return None
        raise Retry("a HyperNode changes all the time, or this process ends")


def _is_same(one: HyperNodeObject, other: HyperNodeObject) -> bool:
    return one.metadata.uid == other.metadata.uid and one.spec == other.spec and is_ours(one)


def _patch(hypernode: HyperNode, found: HyperNodeObject) -> dict[str, Any]:
    """Return a merge patch of GKM's fields: labels, annotations and the status of others stay."""
    metadata = {"resourceVersion": found.metadata.resource_version, "uid": found.metadata.uid}
    return {"metadata": metadata, "spec": manifest(hypernode)["spec"]}
