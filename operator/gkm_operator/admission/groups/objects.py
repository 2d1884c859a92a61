"""GroupTemplates, Pools and TaskGroups as admission reads them: bounded, and reduced when they are decoded.

A template stays text until it is used, because decoded it takes many times its bytes. Must never be written back.
"""

from typing import Annotated

import msgspec
from gkm.api import computedomains, json_limits
from gkm.api.meta import API_VERSION, ObjectMeta
from gkm.api.task_groups import (
    ENDED,
    MAX_GROUP_BYTES,
    MAX_TEMPLATES,
    NVLinkTest,
    PoolSpec,
    TaskGroup,
    TaskGroupSpec,
    TemplateValidation,
)
from gkm.kube.resources import Resource
from gkm.templates.claims import claim_template_of
from gkm.templates.pools import PoolTemplate
from gkm.templates.values import Json
from msgspec import Meta, Raw, Struct, field, structs

MAX_TEXT = MAX_GROUP_BYTES
"""Limit of bytes of a template or manifest: the API server allows 128 KiB, and may write `<` and `&` in six bytes."""
_NULL = Raw(b"null")
_ENDED = ENDED | {"Ending"}


class ClusterWideMetadata(Struct, frozen=True, rename="camel"):
    """The metadata of a GroupTemplate or Pool: its name, and the time of its deletion request; None without one."""

    name: str = ""
    deletion_timestamp: str | None = None

    @property
    def terminating(self) -> bool:
        """Return whether the object is being deleted."""
        return self.deletion_timestamp is not None


class ReviewedIdentity(Struct, frozen=True):
    """The name of a GroupTemplate that is being deleted.

    Its other fields are not decoded, so that broken objects can be deleted.
    """

    metadata: ClusterWideMetadata


class ReviewedTemplateSpec(Struct, frozen=True, rename="camel"):
    """The spec of a GroupTemplate in an admission request; `template` is not decoded yet."""

    template: Raw
    validation: Annotated[tuple[TemplateValidation, ...], Meta(max_length=16)] = ()
    nvlink_test: NVLinkTest | None = field(default=None, name="nvlinkTest")

    def __post_init__(self) -> None:
        """Refuse a template that is no object or would take much memory; keep a copy so that the body can be freed."""
        structs.force_setattr(self, "template", _bounded(self.template))
        _decoded(self.template)

    @property
    def object(self) -> Json:
        """Return the decoded `template` field; each call decodes it again, because callers may change it."""
        return _decoded(self.template)


class ReviewedTemplate(Struct, frozen=True):
    """A GroupTemplate as admission reads it, from a request or a watch."""

    metadata: ClusterWideMetadata
    spec: ReviewedTemplateSpec

    @property
    def planned(self) -> PoolTemplate:
        """Return the GroupTemplate in the form in which task groups are planned."""
        return PoolTemplate(self.metadata.name, self.spec.object, self.spec.validation, self.spec.nvlink_test)


class ReviewedPool(Struct, frozen=True):
    """A Pool as admission reads it, without its status."""

    metadata: ClusterWideMetadata
    spec: PoolSpec


class ReviewedGroup(Struct, frozen=True):
    """A TaskGroup in an admission request, without its status."""

    metadata: ObjectMeta
    spec: TaskGroupSpec

    @property
    def group(self) -> TaskGroup:
        """Return the TaskGroup of gkm.api, with an empty status."""
        return TaskGroup(metadata=self.metadata, spec=self.spec)


class PlannedObject(Struct, frozen=True, rename="camel"):
    """An object in a TaskGroup's status; only a ComputeDomain keeps its manifest, because others have up to 512 KiB."""

    api_version: str = ""
    kind: str = ""
    manifest: Raw = _NULL

    def __post_init__(self) -> None:
        """Drop manifests that are not needed, and keep copies of the others so that the body can be freed."""
        group = self.api_version.rpartition("/")[0]
        is_domain = (group, self.kind) == (computedomains.GROUP, computedomains.KIND)
        structs.force_setattr(self, "manifest", _bounded(self.manifest) if is_domain else _NULL)


class ObservedStatus(Struct, frozen=True):
    """The status of a TaskGroup, reduced to its phase and objects."""

    phase: str = "Pending"
    objects: Annotated[tuple[PlannedObject, ...], Meta(max_length=MAX_TEMPLATES)] = ()


class ObservedGroup(Struct, frozen=True):
    """A TaskGroup, reduced to the fields that the review of its pods needs."""

    status: ObservedStatus = ObservedStatus()

    @property
    def planned(self) -> bool:
        """Return whether the group's status names all its objects."""
        return bool(self.status.objects) or self.status.phase != "Pending"

    @property
    def ended(self) -> bool:
        """Return whether the group's objects are deleted or being deleted."""
        return bool(self.status.objects) and self.status.phase in _ENDED

    @property
    def claim_template(self) -> str:
        """Return the name of the ResourceClaimTemplate of the group's ComputeDomain; "" if absent."""
        manifests = [each.manifest for each in self.status.objects if bytes(each.manifest) != b"null"]
        return claim_template_of([_decoded(manifest) for manifest in manifests]) or ""


TEMPLATES: Resource[ReviewedTemplate] = Resource(
    API_VERSION,
    "GroupTemplate",
    "grouptemplates",
    namespaced=False,
    type=ReviewedTemplate,
    unbounded="only cluster administrators write GroupTemplates",
)
POOLS: Resource[ReviewedPool] = Resource(
    API_VERSION,
    "Pool",
    "pools",
    namespaced=False,
    type=ReviewedPool,
    unbounded="only cluster administrators write Pools",
)
TASK_GROUPS: Resource[ObservedGroup] = Resource(
    API_VERSION, "TaskGroup", "taskgroups", namespaced=True, type=ObservedGroup
)


def _bounded(text: Raw) -> Raw:
    """Return a copy of a text that may be decoded; raise ValueError if it would take much memory."""
    view = memoryview(text)
    if view.nbytes > MAX_TEXT:
        raise ValueError(f"an object of {view.nbytes} bytes; the limit is {MAX_TEXT}")
    found = bytes(view)
    json_limits.check(found)
    return Raw(found)


def _decoded(text: Raw) -> Json:
    found: Json = msgspec.json.decode(text, type=Json)
    return found
