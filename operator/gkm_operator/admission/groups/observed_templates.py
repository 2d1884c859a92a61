"""The GroupTemplates and Pools of the cluster, from watches. Must never write to the API.

A watch may lag, so a missing object is read from the API server again, and the pools of a template always. An object
that is being deleted counts as missing: the finalizer of another controller may hold it for ever.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.reflector import Reflector
from gkm.kube.resources import Resource

from gkm_operator.admission.domains.view import ViewUnavailable
from gkm_operator.admission.groups.objects import POOLS, TEMPLATES, ReviewedPool, ReviewedTemplate

T = TypeVar("T", ReviewedPool, ReviewedTemplate)


class ObservedTemplates:
    """`view.Templates` of an API server."""

    def __init__(self, api: Api, reads: Api) -> None:
        """`reads` has short timeouts."""
        self._reads = reads
        self._templates = Reflector(api, TEMPLATES, lambda _old, _new: None)
        self._pools = Reflector(api, POOLS, lambda _old, _new: None)

    def start(self) -> None:
        """Start the watches."""
        for reflector in self._reflectors():
            reflector.start()

    def close(self) -> None:
        """End the watches."""
        for reflector in self._reflectors():
            reflector.close()

    def template(self, name: str) -> ReviewedTemplate | None:
        """See Templates."""
        return self._undeleted(self._templates, name)

    def pool(self, name: str) -> ReviewedPool | None:
        """See Templates."""
        return self._undeleted(self._pools, name)

    def pools_of(self, template: str) -> Sequence[ReviewedPool]:
        """See Templates."""
        try:
            pages = self._reads.list_pages(POOLS)
            pools = (each.value for page in pages for each in page.entries)
            return [pool for pool in pools if template in pool.spec.common_group_templates]
        except ApiError as error:
            raise ViewUnavailable(f"the Pools cannot be listed: {error}") from error

    def _undeleted(self, observed: Reflector[T], name: str) -> T | None:
        found = observed.get(name)
        if found is None or found.metadata.terminating:
            found = self._read(observed.resource, name)
        return None if found is None or found.metadata.terminating else found

    def _read(self, resource: Resource[T], name: str) -> T | None:
        try:
            return self._reads.find(resource, name)
        except ApiError as error:
            raise ViewUnavailable(f"{resource.kind} {name[:253]} cannot be read: {error}") from error

    def _reflectors(self) -> tuple[Reflector[Any], ...]:
        return self._templates, self._pools
