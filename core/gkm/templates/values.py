"""Values that all modules of gkm.templates share: JSON objects, names of variables, and the errors of templates.

Standard library only: the child that renders imports this module.
"""

from typing import Any

Json = dict[str, Any]
"""A JSON object."""

VARIABLES = frozenset(
    {"WF_ID", "WF_UUID", "WF_GROUP_NAME", "WF_GROUP_UUID", "WF_POOL", "WF_SUBMITTED_BY", "TASKS"},
)
"""The variables that expressions may use; a variable without a value is undefined for a group."""
MAX_LEVELS = 64
"""Levels of a template or a rendered object, so that no function that recurses exceeds the stack."""


class TemplateInvalid(ValueError):
    """A group template, Pool or TaskGroup cannot be used; the message says where, what and why."""


class TooLarge(TemplateInvalid):
    """A TaskGroup or Pool with its objects is too large for the API server."""


class RenderingFailed(TemplateInvalid):
    """An expression of a template failed, or exceeded a limit."""


class RenderingUnavailable(Exception):
    """Rendering is not possible now; the templates are not the cause, so the same request may succeed later."""


def check_levels(value: object) -> None:
    """Raise TemplateInvalid if lists and objects in a template are nested more than MAX_LEVELS deep."""
    level = [value]
    for _ in range(MAX_LEVELS + 1):
        level = [child for each in level for child in _children(each)]
        if not level:
            return
    raise TemplateInvalid(f"it is nested more than {MAX_LEVELS} levels deep")


def _children(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
