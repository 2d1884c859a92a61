"""Plan the objects of a group from the templates of its pool (gkm.templates.planning).

A pool or template that the watch does not show is read from the API server: a new object is used at once. An object
that is being deleted is not used: the finalizer of another controller may hold it forever.
"""

from collections.abc import Callable
from typing import TypeVar

from gkm.api.task_group_reasons import GroupReason
from gkm.api.task_group_settings import TaskGroups
from gkm.api.task_groups import GROUP_LABEL, GROUP_UID_LABEL, GroupObject, GroupTemplate, Pool, TaskGroup
from gkm.hoststate.escaping import escape
from gkm.kube.api import Api
from gkm.kube.resources import GROUPTEMPLATES, POOLS, Resource
from gkm.kube.workqueue import Retry
from gkm.templates.groups import owner_references
from gkm.templates.planning import RuleNotMet, planned_objects
from gkm.templates.pools import PoolTemplate
from gkm.templates.rendering.renderer import Renderer
from gkm.templates.values import Json, RenderingFailed, RenderingUnavailable, TemplateInvalid, TooLarge

T = TypeVar("T", Pool, GroupTemplate)
_SECRET = ("v1", "Secret")
_REASONS = {
    RenderingFailed: GroupReason.RENDERING_FAILED,
    RuleNotMet: GroupReason.RULE_NOT_MET,
    TooLarge: GroupReason.TOO_LARGE,
}


class GroupRefused(Exception):
    """The objects of a TaskGroup cannot be created, and a retry would not help."""

    def __init__(self, reason: GroupReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class TemplatePlanner:
    """Plans the objects of TaskGroups; `pool` and `template` return watched objects by name. Thread-safe."""

    def __init__(
        self,
        api: Api,
        settings: TaskGroups,
        renderer: Renderer,
        pool: Callable[[str], Pool | None],
        template: Callable[[str], GroupTemplate | None],
    ) -> None:
        self._api = api
        self._settings = settings
        self._renderer = renderer
        self._pool = pool
        self._template = template

    def plan(self, group: TaskGroup) -> list[Json]:
        """Return the objects of a TaskGroup, rendered from its Pool's templates, in the order of creation.

        Raises:
            GroupRefused: the objects cannot be created.
            ApiError, Retry: the API server does not answer, or rendering is not possible now.
        """
        pool = self._found(POOLS, group.spec.pool, self._pool, GroupReason.POOL_MISSING)
        templates = [
            self._found(GROUPTEMPLATES, name, self._template, GroupReason.TEMPLATE_MISSING)
            for name in pool.spec.common_group_templates
        ]
        try:
            return planned_objects(group, [*map(PoolTemplate.of, templates)], self._settings, self._renderer)
        except RenderingUnavailable as error:
            raise Retry(str(error)) from error
        except TemplateInvalid as error:
            reason = _REASONS.get(type(error), GroupReason.TEMPLATE_INVALID)
            raise GroupRefused(reason, str(error)) from error

    def body(self, group: TaskGroup, planned: GroupObject, rendered: Json | None) -> Json:
        """Return the JSON body for creating an object of a TaskGroup.

        A Secret is rendered again, because the status lacks its content.

        Raises:
            GroupRefused: the kind is not allowed any more, or the templates of a Secret have changed.
        """
        manifest = planned.manifest or rendered
        if not self._settings.allows(planned.api_version.rpartition("/")[0], planned.kind):
            message = f"{planned.kind} {planned.name}: taskGroups.allowedKinds does not have this kind any more"
            raise GroupRefused(GroupReason.KIND_NOT_ALLOWED, message)
        if manifest is None:
            message = f"the templates of the pool do not render to {planned.kind} {planned.name} any more"
            raise GroupRefused(GroupReason.TEMPLATE_INVALID, message)
        # Its place and its owner depend on the group alone, never on the status.
        metadata = manifest.get("metadata") or {}
        ours = {GROUP_LABEL: group.metadata.name, GROUP_UID_LABEL: group.metadata.uid}
        metadata = metadata | {
            "name": planned.name,
            "namespace": group.metadata.namespace,
            "labels": (metadata.get("labels") or {}) | ours,
            "ownerReferences": owner_references(group),
        }
        return manifest | {"apiVersion": planned.api_version, "kind": planned.kind, "metadata": metadata}

    def _found(self, resource: Resource[T], name: str, observed: Callable[[str], T | None], reason: GroupReason) -> T:
        found = undeleted(observed(name)) or undeleted(self._api.find(resource, name))
        if found is None:
            raise GroupRefused(reason, f"the {resource.kind} {escape(name)} does not exist, or is being deleted")
        return found


def undeleted(found: T | None) -> T | None:
    """Return a Pool or GroupTemplate, None if it is absent or being deleted."""
    return found if found is not None and found.metadata.deletion_timestamp is None else None


def group_object(planned: Json) -> GroupObject:
    """Return a rendered object as an entry of a TaskGroup's status; the entry of a Secret has no manifest."""
    version, kind, name = key_of(planned)
    return GroupObject(version, kind, name, manifest=None if (version, kind) == _SECRET else planned)


def key_of(planned: Json) -> tuple[str, str, str]:
    """Return apiVersion, kind and name of a rendered object."""
    return planned["apiVersion"], planned["kind"], planned["metadata"]["name"]
