"""Reads of a cluster for all checks, each made once; a failure is remembered, too."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from gkm.kube.api import Api, ListSelector
from gkm.kube.resources import DEFINITIONS, Resource

from gkm_cli.clusters import reads
from gkm_cli.clusters.reads import NotServed, Unreadable, merged
from gkm_cli.doctor.findings import some

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Collection(Generic[T]):
    """Objects to list.

    `definition` names the CustomResourceDefinition without which there can be none: only then does a resource that the
    API server does not serve count as an empty list. `labels` is a selector. A `namespace` is that of GKM or Kubernetes
    itself; without one, the objects are those of the command's namespace, or of all.
    """

    resource: Resource[T]
    definition: str = ""
    labels: str = ""
    namespace: str = ""


class ClusterReader:
    """Reads of one cluster, or of one `namespace` of it. `cutoff` is the timestamp that older objects lie before.

    `now` returns the time that those of objects are compared with: that of the API server, where it is known.
    """

    def __init__(
        self, api: Api, *, namespace: str = "", cutoff: str, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._api = api
        self.now = now
        self.namespace = namespace
        self.cutoff = cutoff
        self._read: dict[Hashable, Any] = {}

    def ensure(self, *collections: Collection[Any]) -> None:
        """List collections in this order.

        Raises:
            Unreadable: some cannot be listed; the message names all of these.
        """
        self.all(*(lambda each=each: self.list(each) for each in collections))

    def all(self, *readings: Callable[[], object]) -> list[Any]:
        """Return the results of several reads.

        Raises:
            Unreadable: some failed; the message names all of these.
        """
        found, failures = [], []
        for read in readings:
            try:
                found.append(read())
            except Unreadable as failure:
                failures.append(failure)
        if failures:
            raise failures[0] if len(failures) == 1 else merged(failures)
        return found

    def list(self, collection: Collection[T]) -> tuple[T, ...]:
        """Return the objects of a collection; the first call lists them.

        Raises:
            Unreadable: they cannot be listed, or not all of them can be read.
        """
        return self._once(collection, collection.resource.plural, lambda: self._listed(collection))

    def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T | None:
        """Return an object, None if it does not exist; the first call reads it.

        Raises:
            Unreadable: it cannot be read.
        """
        key = (resource, name, namespace)
        return self._once(key, resource.plural, lambda: reads.get(self._api, resource, name, namespace))

    def _once(self, key: Hashable, plural: str, read: Callable[[], T]) -> T:
        if key not in self._read:
            # What later checks find when the thread of this one is still reading at its deadline.
            late = Unreadable(f"reading {plural} did not end in time", "run the command again, or with --namespace")
            self._read[key] = late
            try:
                self._read[key] = read()
            except Unreadable as failure:
                self._read[key] = failure
        found: T | Unreadable = self._read[key]
        if isinstance(found, Unreadable):
            raise found
        return found

    def _listed(self, collection: Collection[T]) -> tuple[T, ...]:
        resource = collection.resource
        namespace = collection.namespace or (self.namespace if resource.namespaced else "")
        try:
            found, damaged = reads.listed(self._api, resource, ListSelector(namespace, labels=collection.labels))
        except NotServed:
            if collection.definition and self.get(DEFINITIONS, collection.definition) is None:
                return ()
            raise
        if damaged:
            # Without them, what they refer to would look unused, and what refers to them, orphaned.
            raise Unreadable(f"these {resource.plural} cannot be read: {some(damaged)}", "correct or delete them")
        return tuple(found)
