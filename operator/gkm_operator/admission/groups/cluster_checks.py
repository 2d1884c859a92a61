"""Asks the API server about kinds, users and objects: discovery, SubjectAccessReview, and creation as a dry run.

Must never create anything: a policy in the namespace of the dry runs refuses every other request
(deploy/components/task-groups/policies.yaml).
"""

from http import HTTPStatus
from typing import Any, Protocol

from gkm.api.task_group_rights import DRY_RUNS
from gkm.hoststate.names import quoted
from gkm.kube.api import Api
from gkm.kube.discovery import Discovery, KindName
from gkm.kube.errors import ApiError
from gkm.kube.resources import Resource
from gkm.templates.values import Json
from msgspec import Struct

from gkm_operator.admission.domains.requests import UserInfo
from gkm_operator.admission.domains.view import ViewUnavailable
from gkm_operator.admission.groups.view import ObjectRefused

_REFUSED = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})
_MISSING = "FieldValueRequired"
"""The cause of a missing field (metav1.CauseType)."""


class AccessStatus(Struct, frozen=True):
    """The answer of the authorizer."""

    allowed: bool = False


class AccessReview(Struct, frozen=True):
    """A SubjectAccessReview."""

    status: AccessStatus = AccessStatus()


ACCESS_REVIEWS: Resource[AccessReview] = Resource(
    "authorization.k8s.io/v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False, type=AccessReview
)


class CheckingApi(Api, Protocol):
    """The API with a check that changes nothing; `gkm.kube.client.HttpApi` implements it."""

    def dry_run(self, resource: Resource[Any], value: Json) -> None:
        """Let the server check the creation of an object; raise ApiError."""


class ApiChecks:
    """`view.ClusterChecks` of an API server."""

    def __init__(self, api: CheckingApi) -> None:
        """`api` has short timeouts."""
        self._api = api
        self._discovery = Discovery(api)

    def served(self, value: Json) -> Resource[Json] | None:
        """See ClusterChecks."""
        version, name = value["apiVersion"], KindName.of(value["apiVersion"], value["kind"])
        try:
            if (found := self._in_version(name, version)) is None:
                self._discovery.forget(name)  # it may have been installed a moment ago
                found = self._in_version(name, version)
        except ApiError as error:
            raise ViewUnavailable(f"the kinds of {quoted(version)} cannot be read: {error}") from error
        return found

    def may_create(self, user: UserInfo, group: str, plural: str) -> bool:
        """See ClusterChecks."""
        attributes = {"group": group, "resource": plural, "verb": "create"}
        subject = {"user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra}
        head = {"apiVersion": ACCESS_REVIEWS.api_version, "kind": ACCESS_REVIEWS.kind, "metadata": {}}
        try:
            made = self._api.create(ACCESS_REVIEWS, head | {"spec": {**subject, "resourceAttributes": attributes}})
        except ApiError as error:
            raise ViewUnavailable(f"the rights of user {quoted(user.username)} cannot be read: {error}") from error
        return made.status.allowed

    def dry_run(self, resource: Resource[Json], value: Json) -> str:
        """See ClusterChecks."""
        try:
            self._api.dry_run(resource, value | {"metadata": value["metadata"] | {"namespace": DRY_RUNS}})
        except ApiError as error:
            if error.status in _REFUSED:
                raise ObjectRefused(error.message, incomplete=_MISSING in error.causes) from error
            return str(error)
        return ""

    def _in_version(self, name: KindName, version: str) -> Resource[Json] | None:
        return next((each for each in self._discovery.served(name) if each.api_version == version), None)
