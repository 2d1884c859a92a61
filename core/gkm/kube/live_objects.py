"""Read one object from the API server instead of a watch, which may be out of date. Must never write."""

from typing import TypeVar

from gkm.kube.api import Api, ListSelector
from gkm.kube.resources import Resource
from gkm.kube.workqueue import Retry

T = TypeVar("T")


def live_object(api: Api, resource: Resource[T], namespace: str, name: str) -> T | None:
    """Read an object from the API server; return None if it does not exist.

    A list of one name, because a missing object is then no error, and a missing kind is 404.

    Raises:
        ApiError: the API server did not answer, or it has no such kind.
        Retry: the object exists and cannot be decoded.
    """
    selector = ListSelector(namespace, fields=f"metadata.name={name}")
    for page in api.list_pages(resource, selector, limit=1):
        if page.unreadable:
            raise Retry(f"{resource.kind} {namespace}/{name} cannot be read")
        for entry in page.entries:
            return entry.value
    return None
