"""Write the status of pools and templates: the merged templates of a pool, the number of pools that name a template."""

from typing import Any, NamedTuple

from gkm.api.grammar import agree, count_of, listed
from gkm.api.meta import FALSE, TRUE, Condition, timestamp, with_condition
from gkm.api.task_group_reasons import GroupReason
from gkm.api.task_groups import GroupTemplate, GroupTemplateStatus, Pool, PoolStatus
from gkm.hoststate.escaping import escape
from gkm.hoststate.pacing import Backoff
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.resources import GROUPTEMPLATES, POOLS, Json, Resource
from gkm.kube.workqueue import WorkQueue
from gkm.templates.planning import merged_objects
from gkm.templates.pools import PoolTemplate
from gkm.templates.values import TemplateInvalid
from msgspec import to_builtins

from gkm_operator import metrics
from gkm_operator.taskgroups.conditions import MAX_MESSAGE
from gkm_operator.taskgroups.planning import undeleted
from gkm_operator.taskgroups.watcher import GroupWatcher
from gkm_operator.taskgroups.writer import FIELD_MANAGER

QUEUE = "pools"
PARSED = "Parsed"
CALM_SECONDS = 0.2
"""Seconds between a change and the write, so that one write covers several templates."""
_SHOWN = 5


class PoolKey(NamedTuple):
    """Identifies a Pool or a GroupTemplate."""

    kind: str
    name: str


class PoolReconciler:
    """Reconciles the status of Pools and GroupTemplates."""

    def __init__(self, api: Api, watcher: GroupWatcher) -> None:
        self._api = api
        self._watcher = watcher
        watcher.pools.subscribe(self._pool_changed)
        watcher.templates.subscribe(self._template_changed)
        self.queue: WorkQueue[PoolKey] = WorkQueue(
            QUEUE, self.reconcile, workers=1, backoff=Backoff(0.5, 60.0), observe=metrics.reconcile_recorder(QUEUE)
        )

    def reconcile(self, key: PoolKey) -> None:
        """Write the status of a Pool or a GroupTemplate if it differs.

        Raises:
            ApiError: the status was not written.
        """
        if key.kind == POOLS.kind:
            pool = self._watcher.pools.get(key.name)
            if pool is not None:
                names = pool.spec.common_group_templates
                templates = {name: undeleted(self._watcher.templates.get(name)) for name in names}
                self._write(POOLS, pool, pool_status(pool, templates))
            return
        template = self._watcher.templates.get(key.name)
        if template is not None:
            pools = len(self._watcher.pools_with(key.name))
            conditions = template.status.conditions
            self._write(GROUPTEMPLATES, template, GroupTemplateStatus(template.metadata.generation, pools, conditions))

    def _write(
        self, resource: Resource[Any], value: Pool | GroupTemplate, status: PoolStatus | GroupTemplateStatus
    ) -> None:
        if status == value.status:
            return
        metadata = {"name": value.metadata.name, "resourceVersion": value.metadata.resource_version}
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
        try:
            self._api.apply(
                resource, body | {"status": to_builtins(status)}, field_manager=FIELD_MANAGER, subresource="status"
            )
        except ApiError as error:
            if not error.not_found:
                raise

    def _pool_changed(self, old: Pool | None, new: Pool | None) -> None:
        names = {name for pool in (old, new) if pool is not None for name in pool.spec.common_group_templates}
        unchanged = old is not None and new is not None and old.spec == new.spec
        for name in () if unchanged else names:
            self.queue.add(PoolKey(GROUPTEMPLATES.kind, name), CALM_SECONDS)
        if new is not None:
            self.queue.add(PoolKey(POOLS.kind, new.metadata.name), CALM_SECONDS)
        elif old is not None:
            self.queue.forget(PoolKey(POOLS.kind, old.metadata.name))

    def _template_changed(self, old: GroupTemplate | None, new: GroupTemplate | None) -> None:
        template = new or old
        if template is None:
            return
        name = template.metadata.name
        if new is not None:
            self.queue.add(PoolKey(GROUPTEMPLATES.kind, name), CALM_SECONDS)
        before, after = undeleted(old), undeleted(new)
        if before is None or after is None or before.spec != after.spec:
            for pool in self._watcher.pools_with(name):
                self.queue.add(PoolKey(POOLS.kind, pool.metadata.name), CALM_SECONDS)


def pool_status(pool: Pool, templates: dict[str, GroupTemplate | None]) -> PoolStatus:
    """Return the status of a Pool; `templates` are the templates that it names, None for a missing one."""
    parsed: list[Json] = []
    found = [template for template in templates.values() if template is not None]
    if missing := [name for name, template in templates.items() if template is None]:
        value, reason = FALSE, GroupReason.TEMPLATE_MISSING
        message = f"these GroupTemplates do not exist, or are being deleted: {listed(sorted(missing), _SHOWN)}"
    else:
        try:
            parsed = merged_objects([PoolTemplate.of(each) for each in found])
            value, reason, message = TRUE, GroupReason.PARSED, _sizes(len(found), len(parsed))
        except TemplateInvalid as error:
            value, reason, message = FALSE, GroupReason.TEMPLATE_INVALID, str(error)
    generation = pool.metadata.generation
    condition = Condition(PARSED, value, reason, escape(message)[:MAX_MESSAGE], timestamp(), generation)
    return PoolStatus(generation, parsed, with_condition(pool.status.conditions, condition))


def _sizes(templates: int, objects: int) -> str:
    return f"{count_of(templates, 'template')} {agree(templates, 'makes', 'make')} {count_of(objects, 'object')}"
