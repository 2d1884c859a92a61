"""Bounded reads of a cluster for all checks: each collection is listed once, and every failure becomes NotChecked."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gkm.kube.api import Api, ListSelector
from gkm.kube.errors import ApiError
from gkm.kube.resources import Json, Resource

from gkm_cli.doctor.findings import NotChecked, merged, some

T = TypeVar("T")

MAX_OBJECTS = 50_000
"""Objects in a list: 200 requests of one page. 50,000 pods take about 100 MiB, as reduced as checks need them."""

DEFINITIONS: Resource[Json] = Resource(
    "apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False, type=Json
)
RIGHTS_HINT = "docs/reference/doctor.md has a ClusterRole with all rights that gkm doctor needs"
_FORBIDDEN = 403


@dataclass(frozen=True, slots=True)
class Collection(Generic[T]):
    """Objects to list.

    `definition` names the CustomResourceDefinition without which there can be none: only then does a resource that the
    API server does not serve count as an empty list. `labels` is a selector.
    """

    resource: Resource[T]
    definition: str = ""
    labels: str = ""


class NotServed(NotChecked):
    """The API server does not serve the resource in this version."""


class ClusterReader:
    """Reads of one cluster, or of one `namespace` of it. `cutoff` is the timestamp that older objects lie before."""

    def __init__(self, api: Api, *, namespace: str = "", cutoff: str) -> None:
        self._api = api
        self.namespace = namespace
        self.cutoff = cutoff
        self._lists: dict[Collection[Any], tuple[Any, ...] | NotChecked] = {}

    def ensure(self, *collections: Collection[Any]) -> None:
        """List collections in this order.

        Raises:
            NotChecked: some cannot be listed; the message names all of these.
        """
        failures = []
        for collection in collections:
            try:
                self.list(collection)
            except NotChecked as failure:
                failures.append(failure)
        if failures:
            raise failures[0] if len(failures) == 1 else merged(failures)

    def list(self, collection: Collection[T]) -> tuple[T, ...]:
        """Return the objects of a collection; the first call lists them.

        Raises:
            NotChecked: they cannot be listed, or not all of them can be read.
        """
        if collection not in self._lists:
            plural = collection.resource.plural
            # What later checks find when the thread of this one is still reading at its deadline.
            late = NotChecked(f"the list of {plural} did not end in time", "run the command again, or with --namespace")
            self._lists[collection] = late
            try:
                self._lists[collection] = self._listed(collection)
            except NotChecked as failure:
                self._lists[collection] = failure
        found = self._lists[collection]
        if isinstance(found, NotChecked):
            raise found
        return found

    def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T | None:
        """Return an object, None if it does not exist.

        Raises:
            NotChecked: it cannot be read.
        """
        try:
            return self._api.get(resource, name, namespace)
        except ApiError as error:
            if error.not_found:
                return None
            raise _failure("get", resource, name, namespace or "", error) from error

    def _listed(self, collection: Collection[T]) -> tuple[T, ...]:
        resource = collection.resource
        namespace = self.namespace if resource.namespaced else ""
        found: list[T] = []
        try:
            for page in self._api.list_pages(resource, ListSelector(namespace=namespace, labels=collection.labels)):
                if page.unreadable:
                    # Without them, what they refer to would look unused, and what refers to them, orphaned.
                    names = some("/".join(filter(None, key)) for key in page.unreadable)
                    raise NotChecked(f"these {resource.plural} cannot be read: {names}", "correct or delete them")
                found += (entry.value for entry in page.entries)
                if len(found) > MAX_OBJECTS:
                    raise NotChecked(f"there are more than {MAX_OBJECTS} {resource.plural}", "use --namespace")
        except ApiError as error:
            if not error.not_found:
                raise _failure("list", resource, "", namespace, error) from error
            if collection.definition and self.get(DEFINITIONS, collection.definition) is None:
                return ()
            served = f"the API server does not serve {resource.plural} of {resource.api_version}"
            raise NotServed(served, "see the check domains/version") from error
        return tuple(found)


def _failure(verb: str, resource: Resource[Any], name: str, namespace: str, error: ApiError) -> NotChecked:
    group, separator, _ = resource.api_version.partition("/")
    what = resource.plural + (f".{group}" if separator else "") + (f"/{name}" if name else "")
    if error.status != _FORBIDDEN:
        return NotChecked(f"cannot {verb} {what}: {error.message}", "run the command again when the API server is well")
    where = f" in the namespace {namespace}" if namespace else " in all namespaces" if resource.namespaced else ""
    return NotChecked(f"missing right: {verb} {what}{where}", RIGHTS_HINT)
