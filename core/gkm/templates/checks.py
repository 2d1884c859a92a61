"""The conditions on a template before rendering: its identity, its kind, its namespace and its size. Pure."""

from dataclasses import dataclass

from gkm.api.task_group_settings import TaskGroups
from gkm.api.task_groups import MAX_TEMPLATE_BYTES
from gkm.hoststate.names import quoted
from gkm.templates.encoding import encoded
from gkm.templates.pools import identity
from gkm.templates.values import Json, TemplateInvalid, check_levels

_METADATA = frozenset({"name", "namespace", "labels", "annotations"})
"""Allowed metadata fields. Others would let a template take part in garbage collection (ownerReferences) or block
it."""


@dataclass(frozen=True, slots=True)
class TemplateFindings:
    """The reasons for refusing a group template, and warnings; both are empty for a good template."""

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def check(template: Json, settings: TaskGroups) -> TemplateFindings:
    """Check a group template without compiling its expressions; return the findings."""
    try:
        check_levels(template)
        encoded(template, MAX_TEMPLATE_BYTES, "all fields together")
        group, kind, _ = identity(template)
    except TemplateInvalid as error:
        return TemplateFindings((str(error),))
    errors = [
        f"{field} cannot contain expressions, because the kind decides what the template may do"
        for field in ("apiVersion", "kind")
        if "{" in template[field]
    ]
    if not errors and (refusal := not_allowed(group, kind, settings)):
        errors.append(refusal)
    metadata = template["metadata"]
    errors += [
        f"metadata.{quoted(field)} cannot be set by a template; it may set {', '.join(sorted(_METADATA))}"
        for field, value in metadata.items()
        if field not in _METADATA and value is not None
    ]
    if not metadata.get("namespace"):
        return TemplateFindings(tuple(errors))
    if settings.namespaces == "enforce":
        return TemplateFindings(
            (*errors, "metadata.namespace must not be set: objects go to the namespace of their TaskGroup")
        )
    return TemplateFindings(
        tuple(errors), ("metadata.namespace is ignored: objects go to the namespace of their TaskGroup; remove it",)
    )


def not_allowed(group: str, kind: str, settings: TaskGroups) -> str:
    """Return why templates may not create objects of a kind; "" if they may."""
    if settings.allows(group, kind):
        return ""
    allowed = ", ".join(map(str, settings.allowed_kinds)) or "none"
    named = quoted(f"{kind}.{group}" if group else kind)
    return f"the kind {named} is not allowed; taskGroups.allowedKinds of the configuration has: {allowed}"
