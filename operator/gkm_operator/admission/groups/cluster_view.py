"""Read the cluster for reviews of group templates: GroupTemplates and Pools from watches, other facts by requests.

A watch may lag, so a missing object is read from the API server again, and the pools of a template always. An object
that is being deleted is missing: the finalizer of another controller may hold it forever.

The API server is asked about kinds, users and objects: discovery, SubjectAccessReview, and creation as a dry run. Must
never create anything: a policy in the namespace of the dry runs refuses every other request
(deploy/components/task-groups/policies.yaml).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol, TypeVar

from gkm.api.task_group_rights import DRY_RUNS
from gkm.api.task_group_settings import TaskGroups
from gkm.hoststate.names import quoted
from gkm.kube.api import Api
from gkm.kube.discovery import Discovery, KindName
from gkm.kube.errors import ApiError
from gkm.kube.reflector import Reflector
from gkm.kube.resources import Resource
from gkm.templates.rendering.renderer import Renderer
from gkm.templates.values import Json
from msgspec import Struct

from gkm_operator.admission.domains.cluster_view import ViewUnavailable
from gkm_operator.admission.domains.requests import UserInfo
from gkm_operator.admission.groups.objects import POOLS, TEMPLATES, ReviewedPool, ReviewedTemplate

T = TypeVar("T", ReviewedPool, ReviewedTemplate)

_REFUSED = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})
_MISSING = "FieldValueRequired"
"""The cause for a missing field in an API error (metav1.CauseType)."""


class ObjectRefused(Exception):
    """The API server would refuse an object; `incomplete`: the object lacks fields that another template may add."""

    def __init__(self, message: str, *, incomplete: bool) -> None:
        super().__init__(message)
        self.incomplete = incomplete


class ClusterChecks(Protocol):
    """Checks that only the API server can make. Thread-safe."""

    def served(self, value: Json) -> Resource[Json] | None:
        """Return the resource of an object; None if its kind is not installed. Raise ViewUnavailable."""

    def may_create(self, user: UserInfo, group: str, plural: str) -> bool:
        """Return whether a user may create objects of a kind in all namespaces. Raise ViewUnavailable."""

    def dry_run(self, resource: Resource[Json], value: Json) -> str:
        """Ask the API server whether it would create an object; return why that could not be checked, "" if it could.

        Raises:
            ObjectRefused: the API server refuses it.
        """


class ObservedTemplates:
    """Reads GroupTemplates and Pools from watches. Thread-safe.

    Every method raises ViewUnavailable if they cannot be read.
    """

    def __init__(self, api: Api, reads: Api) -> None:
        """Create the watches. `reads` is an API client with short timeouts."""
        self._reads = reads
        self._templates = Reflector(api, TEMPLATES)
        self._pools = Reflector(api, POOLS)

    def watches(self) -> tuple[Reflector[Any], ...]:
        """Return the watches of GroupTemplates and Pools, for the caller to start."""
        return self._templates, self._pools

    def template(self, name: str) -> ReviewedTemplate | None:
        """Return a GroupTemplate; None if it does not exist, or is being deleted."""
        return self._undeleted(self._templates, name)

    def pool(self, name: str) -> ReviewedPool | None:
        """Return a Pool; None if it does not exist, or is being deleted."""
        return self._undeleted(self._pools, name)

    def pools_of(self, template: str) -> Sequence[ReviewedPool]:
        """Return the Pools that name a GroupTemplate, from a new list request; raise ViewUnavailable if it fails."""
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


class AccessStatus(Struct, frozen=True):
    """The status of a SubjectAccessReview: whether the API server's authorizer allows the request."""

    allowed: bool = False


class AccessReview(Struct, frozen=True):
    """A SubjectAccessReview with the API server's result."""

    status: AccessStatus = AccessStatus()


ACCESS_REVIEWS: Resource[AccessReview] = Resource(
    "authorization.k8s.io/v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False, type=AccessReview
)


class CheckingApi(Api, Protocol):
    """An API client that can check the creation of an object without storing it.

    gkm.kube.client.HttpApi implements it.
    """

    def dry_run(self, resource: Resource[Any], value: Json) -> None:
        """Ask the API server to check the creation of an object; raise ApiError if it refuses."""


class ApiChecks:
    """Checks objects and rights with requests to the API server (ClusterChecks)."""

    def __init__(self, api: CheckingApi) -> None:
        """Keep the API client `api`, which has short timeouts."""
        self._api = api
        self._discovery = Discovery(api)

    def served(self, value: Json) -> Resource[Json] | None:
        """Return the resource of an object; None if its kind is not installed. Raise ViewUnavailable."""
        version, name = value["apiVersion"], KindName.of(value["apiVersion"], value["kind"])
        try:
            if (found := self._in_version(name, version)) is None:
                self._discovery.forget(name)  # it may have been installed a moment ago
                found = self._in_version(name, version)
        except ApiError as error:
            raise ViewUnavailable(
                f"the API server's kinds of apiVersion {quoted(version)} cannot be read: {error}"
            ) from error
        return found

    def may_create(self, user: UserInfo, group: str, plural: str) -> bool:
        """Return whether a user may create objects of a kind in all namespaces. Raise ViewUnavailable."""
        attributes = {"group": group, "resource": plural, "verb": "create"}
        subject = {"user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra}
        head = {"apiVersion": ACCESS_REVIEWS.api_version, "kind": ACCESS_REVIEWS.kind, "metadata": {}}
        try:
            made = self._api.create(ACCESS_REVIEWS, head | {"spec": {**subject, "resourceAttributes": attributes}})
        except ApiError as error:
            raise ViewUnavailable(f"the rights of user {quoted(user.username)} cannot be read: {error}") from error
        return made.status.allowed

    def dry_run(self, resource: Resource[Json], value: Json) -> str:
        """Ask the API server whether it would create an object; return why it could not check that, "" if it could."""
        try:
            self._api.dry_run(resource, value | {"metadata": value["metadata"] | {"namespace": DRY_RUNS}})
        except ApiError as error:
            if error.status in _REFUSED:
                raise ObjectRefused(error.message, incomplete=_MISSING in error.causes) from error
            return str(error)
        return ""

    def _in_version(self, name: KindName, version: str) -> Resource[Json] | None:
        return next((each for each in self._discovery.served(name) if each.api_version == version), None)


@dataclass(frozen=True, slots=True)
class Partners:
    """The objects through which decisions about templates, pools and groups read the cluster. Thread-safe."""

    templates: ObservedTemplates
    cluster: ClusterChecks
    renderer: Renderer
    settings: TaskGroups
