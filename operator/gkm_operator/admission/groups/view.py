"""Protocols for what reviews of group templates read; `cluster_view` implements them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gkm.api.task_group_settings import TaskGroups
from gkm.kube.resources import Resource
from gkm.templates.rendering.renderer import Renderer
from gkm.templates.values import Json

from gkm_operator.admission.domains.requests import UserInfo
from gkm_operator.admission.groups.objects import ReviewedPool, ReviewedTemplate


class Templates(Protocol):
    """Reads GroupTemplates and Pools. Thread-safe; every method raises ViewUnavailable if they cannot be read."""

    def template(self, name: str) -> ReviewedTemplate | None:
        """Return a GroupTemplate; None if it does not exist, or is being deleted."""

    def pool(self, name: str) -> ReviewedPool | None:
        """Return a Pool; None if it does not exist, or is being deleted."""

    def pools_of(self, template: str) -> Sequence[ReviewedPool]:
        """Return the Pools that name a GroupTemplate."""


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


@dataclass(frozen=True, slots=True)
class Partners:
    """The objects through which decisions about templates, pools and groups read the cluster. Thread-safe."""

    templates: Templates
    cluster: ClusterChecks
    renderer: Renderer
    settings: TaskGroups
