"""Decisions about GroupTemplates, Pools, TaskGroups and the pods of TaskGroups.

A template must compile, render, merge into its pools, and pass as an object; its author must have the right to create
its kind, because the controllers create it with theirs. The templates of a pool must exist, merge, and make objects
that the API server takes.

The pool of a new group must exist, its rules be met, and its templates render for this group; the controllers check the
same again before they create anything. An update must never be refused: the fields of a group are immutable but the
phase, which ends the group.

A pod with the label gkm.io/task-group gets the claim of its group's ComputeDomain, and its placement. It is refused
only while its group has no objects yet, or no longer has any. An unreadable cluster causes no refusal.
"""

import time
from collections.abc import Callable, Iterator

from gkm.api.grammar import listed
from gkm.api.task_groups import GROUP_LABEL, USER_CONTAINER_LABEL
from gkm.hoststate.names import quoted
from gkm.kube.discovery import KindName
from gkm.templates.checks import check
from gkm.templates.planning import (
    findings,
    merged_objects,
    planned_objects,
    sample_object,
    sample_objects,
)
from gkm.templates.pools import PoolTemplate
from gkm.templates.values import Json, TemplateInvalid
from msgspec import Struct

from gkm_operator.admission.domains.cluster_view import ReviewView
from gkm_operator.admission.domains.patches import place
from gkm_operator.admission.domains.pods import tolerant
from gkm_operator.admission.domains.requests import DomainRequest, LabeledMetadata, ReviewedPodSpec, UserInfo
from gkm_operator.admission.groups.cluster_view import ObjectRefused, ObservedTemplates, Partners
from gkm_operator.admission.groups.objects import (
    TASK_GROUPS,
    ReviewedGroup,
    ReviewedIdentity,
    ReviewedPool,
    ReviewedTemplate,
)
from gkm_operator.admission.review import ADMITTED, ReviewResponse, refused, warned
from gkm_operator.mnnvl.gpu_requests import ContainerLocation, DeviceClasses, GPURequests
from gkm_operator.mnnvl.injection import GROUP_CLAIM, ChannelClaim, inject_into

_SHOWN_POOLS = 5

DRY_RUN_SECONDS = 3.0
"""Seconds of a review after which no dry run begins. A review has 5 seconds, and a pool up to 64 objects."""

GROUP_SECONDS = 1.0
"""Seconds for which a TaskGroup is cached: all its pods are created within a moment."""


def review_template(_view: object, request: DomainRequest[ReviewedTemplate], *, partners: Partners) -> ReviewResponse:
    """Return the admission response for a GroupTemplate; raise ViewUnavailable if the cluster cannot be read."""
    template = request.object
    planned, renderer, settings = template.planned, partners.renderer, partners.settings
    try:
        found = findings(planned, settings, renderer)
        if found.errors:
            return refused(*found.errors)
        rendered = sample_object(planned, settings, renderer)
    except TemplateInvalid as error:
        return refused(str(error))
    if problems := list(_pool_problems(template, partners.templates)):
        return refused(*problems)
    return _check_template(partners, request.user, rendered, found.warnings)


def _pool_problems(changed: ReviewedTemplate, templates: ObservedTemplates) -> Iterator[str]:
    """Yield the pools whose templates would not merge any more; missing templates are ignored."""
    for pool in templates.pools_of(changed.metadata.name):
        found = [
            template.planned
            for name in pool.spec.common_group_templates
            if (template := changed if name == changed.metadata.name else templates.template(name))
        ]
        try:
            merged_objects(found)
        except TemplateInvalid as error:
            yield f"Pool {quoted(pool.metadata.name)} would break: {error}"


def _check_template(partners: Partners, user: UserInfo, rendered: Json, warnings: tuple[str, ...]) -> ReviewResponse:
    """Return the response after the checks of a template's object that only the API server can make."""
    cluster, name = partners.cluster, KindName.of(rendered["apiVersion"], rendered["kind"])
    resource = cluster.served(rendered)
    plural = resource.plural if resource else partners.settings.plural(*name)
    if not cluster.may_create(user, name.group, plural):
        return refused(
            f"user {quoted(user.username)} may not create {name} in all namespaces; the author of a template "
            "needs that right, because GKM creates its objects in every namespace"
        )
    if resource is not None and not resource.namespaced:
        return refused(f"{name} is cluster-scoped; a template makes an object in the namespace of its group")
    try:
        untried = cluster.dry_run(resource, rendered) if resource else f"{name} is not installed in this version"
    except ObjectRefused as error:
        if not error.incomplete:
            return refused(f"with sample values, the API server refuses the object: {error}")
        untried = f"it lacks fields, which other templates of its pools must add: {error}"
    if untried:
        warnings = (*warnings, f"the template was not checked against its schema: {untried}")
    return warned(*warnings)


def review_deletion(_view: object, request: DomainRequest[ReviewedIdentity], *, partners: Partners) -> ReviewResponse:
    """Refuse the deletion of a GroupTemplate that a Pool names; raise ViewUnavailable if the Pools cannot be read."""
    metadata = request.object.metadata
    pools = sorted(pool.metadata.name for pool in partners.templates.pools_of(metadata.name))
    if metadata.terminating or not pools:
        return ADMITTED
    return refused(
        f"GroupTemplate {quoted(metadata.name)} is in use by Pools: {listed(pools, _SHOWN_POOLS)}; remove it from "
        "their spec.commonGroupTemplates first"
    )


def review_pool(
    _view: object,
    request: DomainRequest[ReviewedPool],
    *,
    partners: Partners,
    clock: Callable[[], float] = time.monotonic,
) -> ReviewResponse:
    """Return the admission response for a Pool; raise ViewUnavailable if the cluster cannot be read."""
    until = clock() + DRY_RUN_SECONDS
    try:
        objects = merged_objects(templates_of(request.object, partners.templates))
        if problems := [error for each in objects for error in check(each, partners.settings).errors]:
            return refused(*problems)
        rendered = sample_objects(objects, partners.settings, partners.renderer)
    except TemplateInvalid as error:
        return refused(str(error))
    problems, warnings = [], []
    for each in rendered:
        name = f"{each['kind']} {quoted(each['metadata']['name'])}"
        if clock() > until:
            warnings.append(f"{name} and the objects after it were not checked: the API server takes too long")
            break
        resource = partners.cluster.served(each)
        try:
            untried = partners.cluster.dry_run(resource, each) if resource else "its kind is not installed"
        except ObjectRefused as error:
            problems.append(f"with sample values, the API server refuses {name}: {error}")
            continue
        if untried:
            warnings.append(f"{name} was not checked against its schema: {untried}")
    return refused(*problems) if problems else warned(*warnings)


def templates_of(pool: ReviewedPool, templates: ObservedTemplates) -> list[PoolTemplate]:
    """Return the GroupTemplates that a Pool names, in the Pool's order.

    Raises:
        TemplateInvalid: a template does not exist, or is being deleted.
        ViewUnavailable: the templates cannot be read.
    """
    found = [(name, templates.template(name)) for name in pool.spec.common_group_templates]
    if missing := sorted({quoted(name) for name, template in found if template is None}):
        named = f"Pool {quoted(pool.metadata.name)} names GroupTemplates"
        raise TemplateInvalid(f"{named} that do not exist, or are being deleted: {', '.join(missing)}")
    return [template.planned for _, template in found if template is not None]


def review_group(_view: object, request: DomainRequest[ReviewedGroup], *, partners: Partners) -> ReviewResponse:
    """Refuse a new TaskGroup whose objects cannot be rendered; raise ViewUnavailable if the cluster cannot be read."""
    group = request.object.group
    if request.operation != "CREATE":
        return ADMITTED
    pool = partners.templates.pool(group.spec.pool)
    if pool is None:
        return refused(f"Pool {quoted(group.spec.pool)} does not exist, or is being deleted")
    try:
        planned_objects(group, templates_of(pool, partners.templates), partners.settings, partners.renderer)
    except TemplateInvalid as error:
        return refused(str(error))
    return ADMITTED


class ReviewedTaskPod(Struct, frozen=True):
    """A pod in an admission request, reduced to the fields that the review of TaskGroups' pods reads."""

    metadata: LabeledMetadata
    spec: ReviewedPodSpec = ReviewedPodSpec()

    def label(self, key: str) -> str:
        """Return the value of a label of the pod; "" if absent."""
        return (self.metadata.labels or {}).get(key, "")


def review_task_pod(
    view: ReviewView, request: DomainRequest[ReviewedTaskPod], *, gpus: GPURequests, planning: bool
) -> ReviewResponse:
    """Add the claim of a TaskGroup's ComputeDomain to its pod: to GPU containers, or to the named container.

    `planning` is whether the controllers plan TaskGroups.

    Raises:
        ViewUnavailable: the TaskGroup cannot be read.
    """
    pod = request.object
    name = pod.label(GROUP_LABEL)
    if request.operation != "CREATE" or not name:
        return ADMITTED
    group = view.object(TASK_GROUPS, request.namespace, name, GROUP_SECONDS)
    if group is None:
        return refused(f"TaskGroup {quoted(name)} does not exist here; create it before its pods")
    if group.ended:
        return refused(f"TaskGroup {quoted(name)} has ended, and its objects go: create another one")
    if not group.planned:
        then = "try again in a moment" if planning else "taskGroups.enabled is off in gkm-config"
        return refused(f"the objects of TaskGroup {quoted(name)} are not planned yet; {then}")
    if not group.claim_template:
        return ADMITTED
    return _join(pod, group.claim_template, view.device_classes(request.namespace, strict=True), gpus)


def _join(pod: ReviewedTaskPod, template: str, device_classes: DeviceClasses, gpus: GPURequests) -> ReviewResponse:
    unread: list[str] = []
    classes = tolerant(device_classes, unread)
    container = pod.label(USER_CONTAINER_LABEL)
    locations = _named(pod, container) if container else gpus.containers(pod.spec, classes)
    if container and not locations:
        return warned(f"the pod has no container {quoted(container)}, so no container gets the claim {GROUP_CLAIM!r}")
    if not locations:
        return warned(*unread)
    injection = inject_into(locations, pod.spec, ChannelClaim(GROUP_CLAIM, template), "/spec", classes)
    if injection.skipped:
        return warned(f"the pod does not join the ComputeDomain of its TaskGroup: {injection.skipped}")
    placed = place(pod.spec, pod.label(GROUP_LABEL), "/spec", gpus.settings, GROUP_LABEL)
    return ReviewResponse(allowed=True, warnings=tuple(unread), patch=(*injection.operations, *placed))


def _named(pod: ReviewedTaskPod, name: str) -> list[ContainerLocation]:
    return [ContainerLocation(at, index) for at, index, each in pod.spec.each_container() if each.name == name]
