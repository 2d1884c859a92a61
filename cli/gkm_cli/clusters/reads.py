"""Bounded reads of single objects and lists, with errors that name a missing right. They never write."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from gkm.kube.api import Api, ListPage, ListSelector
from gkm.kube.errors import ApiError
from gkm.kube.resources import Resource

from gkm_cli.output import CommandFailed

T = TypeVar("T")

MAX_OBJECTS = 50_000
"""Objects in a list: 200 requests of one page. 50,000 pods take about 100 MiB, as reduced as checks need them."""
RIGHTS_HINT = "ask an administrator to bind the ClusterRole gkm-reader to your account (docs/reference/rights.md)"


class Unreadable(CommandFailed):
    """The cluster did not show an object that a command needs: `why`, and a hint what to do next."""

    def __init__(self, why: str, hint: str) -> None:
        super().__init__(f"{why}; {hint}")
        self.why = why
        self.hint = hint


class NotServed(Unreadable):
    """The API server does not serve this kind in this version."""


def get(api: Api, resource: Resource[T], name: str, namespace: str | None = None) -> T | None:
    """Return an object, None if it or its kind does not exist.

    Raises:
        Unreadable: the object cannot be read.
    """
    try:
        return api.find(resource, name, namespace)
    except ApiError as error:
        raise unreadable("get", resource, name, namespace or "", error) from error


def listed(api: Api, resource: Resource[T], selector: ListSelector, hint: str = "") -> tuple[list[T], list[str]]:
    """Return the objects of a list, and the names of those that cannot be decoded; `hint` as for `pages`.

    Raises:
        NotServed: the API server does not serve this kind or version.
        Unreadable: they cannot be listed, or are more than MAX_OBJECTS.
    """
    found: list[T] = []
    damaged: list[str] = []
    for page in pages(api, resource, selector, hint=hint):
        found += (entry.value for entry in page.entries)
        damaged += ("/".join(filter(None, key)) for key in page.unreadable)
    return found, damaged


def pages(
    api: Api,
    resource: Resource[T],
    selector: ListSelector,
    most: int | None = None,
    hint: str = "",
) -> Iterator[ListPage[T]]:
    """Yield a list of objects in pages; `hint` is for more than `most` objects (None: MAX_OBJECTS), "" a general one.

    Raises:
        NotServed: the API server does not serve this kind or version.
        Unreadable: they cannot be listed, or are too many.
    """
    count, limit = 0, MAX_OBJECTS if most is None else most
    try:
        for page in api.list_pages(resource, selector):
            count += len(page.entries) + len(page.unreadable)
            if count > limit:
                raise Unreadable(f"there are more than {limit} {resource.plural}", hint or _fewer(resource, selector))
            yield page
    except ApiError as error:
        if error.not_found:
            served = f"the API server does not serve {resource.plural} of {resource.api_version}"
            raise NotServed(served, "see gkm doctor: the checks kinds/missing and domains/version") from error
        raise unreadable("list", resource, "", selector.namespace, error) from error


def merged(failures: Sequence[Unreadable]) -> Unreadable:
    """Merge several failures into one; each text occurs once."""
    return Unreadable(
        "; ".join(dict.fromkeys(failure.why for failure in failures)),
        "; ".join(dict.fromkeys(failure.hint for failure in failures)),
    )


def unreadable(verb: str, resource: Resource[Any], name: str, namespace: str, error: ApiError) -> Unreadable:
    """Return the failure to read an object, or objects, for an error of the API server."""
    what = _kind(resource) + (f"/{name}" if name else "")
    if not error.forbidden:
        return Unreadable(f"cannot {verb} {what}: {error.message}", "run the command again when the API server is well")
    where = f" in the namespace {namespace}" if namespace else " in all namespaces" if resource.namespaced else ""
    return Unreadable(f"missing right: {verb} {what}{where}", RIGHTS_HINT)


def _fewer(resource: Resource[Any], selector: ListSelector) -> str:
    """Return the next step after a list with too many objects."""
    if resource.namespaced and not selector.namespace:
        return "name a namespace with -n"
    if selector.namespace:
        return f"kubectl get {_kind(resource)} -n {selector.namespace} lists them all"
    return f"kubectl get {_kind(resource)} lists them all"


def _kind(resource: Resource[Any]) -> str:
    group, separator, _ = resource.api_version.partition("/")
    return resource.plural + (f".{group}" if separator else "")
