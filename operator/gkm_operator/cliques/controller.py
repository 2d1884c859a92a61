"""The built-in controllers: a PodCliqueSet has PodCliques and scaling groups, these have PodCliques, which have pods.

One queue holds the objects that own others. A pass over one of them compares the children that it requires with those
that the watches show, and sends the difference. There are no finalizers: owner references let the garbage collector
delete. Nothing is remembered between passes; a child that the watch does not show yet is created again, and conflicts.
"""

import logging
from collections.abc import Callable, Iterable
from threading import Event, Thread
from typing import Any, NamedTuple

from gkm.api.config import Config
from gkm.api.mnnvl_metadata import GROVE_OPERATOR, MANAGED_BY
from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff
from gkm.kube.api import Api, Key, ListSelector
from gkm.kube.elector import NotLeading
from gkm.kube.events import Recorder
from gkm.kube.index import Index
from gkm.kube.reflector import Reflector
from gkm.kube.workqueue import Retry, WorkQueue

from gkm_operator import metrics
from gkm_operator.cliques import grove_operator
from gkm_operator.cliques.children import of_group, of_set
from gkm_operator.cliques.desired import Difference, difference
from gkm_operator.cliques.kinds import (
    CLIQUES,
    GROUPS,
    PODS,
    RESOURCES,
    SERVICES,
    SETS,
    Child,
    ChildPod,
    Parent,
    PodClique,
    PodCliqueScalingGroup,
    PodCliqueSet,
)
from gkm_operator.cliques.large_objects import LargeObjects
from gkm_operator.cliques.pods import pod_difference
from gkm_operator.cliques.status import status_of
from gkm_operator.cliques.writer import FIELD_MANAGER, ChildWriter

_LOG = logging.getLogger(__name__)

NAME = "cliques"
BACKOFF = Backoff(0.5, 30.0)
"""Admission refuses PodCliques whose ComputeDomain does not exist yet, for a second or so."""
CALM_SECONDS = 0.2
"""The delay after a change of a child, so that one pass handles the changes of its siblings."""
WORKERS = 4
_POLL_SECONDS = 0.05
_OURS = ListSelector(labels=f"{MANAGED_BY}={GROVE_OPERATOR}")


class ParentKey(NamedTuple):
    """An object that owns others."""

    kind: str
    namespace: str
    name: str


class CliquesController:
    """Runs in the leader, if `grove.builtInControllers` is on. `leads` is called before every write."""

    def __init__(
        self,
        api: Api,
        config: Config,
        *,
        leads: Callable[[], bool],
        instance: str = "",
        backoff: Backoff = BACKOFF,
        calm: float = CALM_SECONDS,
    ) -> None:
        self._api = api
        self._config = config
        self._leads = leads
        self._calm = calm
        recorder = Recorder(api, "gkm.io/cliques", instance or FIELD_MANAGER)
        self._writer = ChildWriter(api, recorder, self._check_may_write)
        self._large = LargeObjects(api)
        self._children: Index[Key, Child] = Index(_owners, lambda child: (type(child), child.metadata.name))
        self._grove = [
            Reflector(api, resource, self._grove_changed, selector=selector)
            for resource, selector in grove_operator.traces(config.network.grove_cluster_role)
        ]
        self._parents: dict[str, Reflector[Any]] = {
            resource.kind: Reflector(api, resource, self._changed) for resource in (CLIQUES, GROUPS, SETS)
        }
        self._reflectors: tuple[Reflector[Any], ...] = (
            *self._grove,
            *(Reflector(api, resource, self._changed, selector=_OURS) for resource in (PODS, SERVICES)),
            *self._parents.values(),
        )
        self.queue: WorkQueue[ParentKey] = WorkQueue(
            NAME,
            self.reconcile,
            workers=WORKERS,
            backoff=backoff,
            group=lambda key: key.namespace,
            observe=metrics.reconcile_recorder(NAME),
        )
        metrics.QUEUE_DEPTH.labels(NAME).set_function(self.queue.__len__)
        self._stop = Event()
        self._thread = Thread(target=self._start, name=NAME, daemon=True)

    def check(self) -> None:
        """Check that these controllers may run, if they are switched on.

        Raises:
            GroveOperatorPresent, BuiltInControllersBlocked, ApiError: as grove_operator.check.
        """
        if self._config.grove.built_in_controllers:
            grove_operator.check(self._api, self._config.network.grove_cluster_role)

    def work(self) -> None:
        """Start to watch, and to write once everything is listed, if switched on. Returns at once."""
        if self._config.grove.built_in_controllers:
            self._thread.start()

    def close(self) -> None:
        """Stop within a few seconds; the next leader continues from the state in the API server."""
        self._stop.set()
        self.queue.close(3.0)
        for reflector in self._reflectors:
            reflector.close(1.0)

    def reconcile(self, key: ParentKey) -> float | None:
        """Write the status, and send the difference between the required and the observed children.

        Raises:
            Retry, ApiError: a request was refused.
        """
        parent: Parent | None = self._parents[key.kind].get(key.name, key.namespace)
        parent = parent and self._large.whole(parent)
        if parent is None or parent.metadata.terminating:
            return None
        if self._grove_is_present():
            if isinstance(parent, PodCliqueSet):
                note = "The built-in controllers write nothing: the Grove operator is installed"
                self._writer.warn(parent, "BuiltInControllersStopped", note)
            return None
        observed = self._children.get((key.namespace, parent.metadata.uid))
        # The status first: it is about what exists, whatever is refused after it.
        self._writer.write_status(parent, status_of(parent, observed))
        found = self._difference(parent, observed)
        return self._writer.send(parent, found) if found else None

    def _difference(self, parent: Parent, observed: Iterable[Child]) -> Difference | None:
        """Return what to send; None for an object without its owner, which is left to the garbage collector."""
        if isinstance(parent, PodCliqueSet):
            return difference(of_set(parent), observed, self._large.patch)
        owner = parent.metadata.controller
        reflector = self._parents.get(owner.kind) if owner else None
        shown: Parent | None = reflector.get(owner.name, parent.metadata.namespace) if owner and reflector else None
        owning = shown and self._large.whole(shown)
        if owner is None or owning is None or owning.metadata.uid != owner.uid:
            return None
        if isinstance(parent, PodClique):
            return pod_difference(parent, (child for child in observed if isinstance(child, ChildPod)))
        return (
            difference(of_group(owning, parent), observed, self._large.patch)
            if isinstance(owning, PodCliqueSet)
            else None
        )

    def _changed(self, old: Any, new: Any) -> None:  # noqa: ANN401 -- Parent | Child, of one type for one reflector
        value: Parent | Child = new or old
        metadata, kind = value.metadata, RESOURCES[type(value)].kind
        if not isinstance(value, PodCliqueSet):
            self._children.change(old, new)
            if (owner := metadata.controller) is not None and owner.kind in self._parents:
                self.queue.add(ParentKey(owner.kind, metadata.namespace, owner.name), self._calm)
        if kind not in self._parents:
            return
        key = ParentKey(kind, metadata.namespace, metadata.name)
        if new is None:
            self.queue.forget(key)
            return
        self.queue.add(key)
        # The template of a scaling group's PodCliques is in the set.
        for child in self._children.get((metadata.namespace, metadata.uid)) if isinstance(value, PodCliqueSet) else ():
            if isinstance(child, PodCliqueScalingGroup):
                self.queue.add(ParentKey(GROUPS.kind, metadata.namespace, child.metadata.name))

    def _grove_changed(self, _old: object, _new: object) -> None:
        present = self._grove_is_present()
        _LOG.warning("the Grove operator appeared or went", extra=fields(built_in="stopped" if present else "working"))
        for kind, reflector in self._parents.items():
            for parent in reflector.values():
                self.queue.add(ParentKey(kind, parent.metadata.namespace, parent.metadata.name))

    def _grove_is_present(self) -> bool:
        return any(reflector.values() for reflector in self._grove)

    def _check_may_write(self) -> None:
        if not self._leads():
            raise NotLeading("this process is not the leader any more")
        if self._grove_is_present():
            raise Retry("the Grove operator was installed meanwhile")

    def _start(self) -> None:
        for reflector in self._reflectors:
            reflector.start()
        while not all(reflector.synced.is_set() for reflector in self._reflectors):
            if self._stop.wait(_POLL_SECONDS):
                return
        _LOG.info("cliques synced")
        self.queue.start()


def _owners(child: Child) -> Iterable[Key]:
    """Return the (namespace, uid) of the controller: an object cannot be owned from another namespace."""
    owner = child.metadata.controller
    return [(child.metadata.namespace, owner.uid)] if owner else []
