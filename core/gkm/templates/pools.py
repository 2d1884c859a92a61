"""Merge the templates of a pool: templates of the same object become one template, at the place of the first. Pure.

Two templates are of one object if API group, kind and name are equal. Names are compared before they are rendered, with
the whitespace inside their expressions normalized.
"""

import re
from collections.abc import Sequence
from copy import deepcopy
from typing import NamedTuple

from gkm.api.task_groups import (
    MAX_GROUP_BYTES,
    MAX_TEMPLATE_BYTES,
    MAX_TEMPLATES,
    GroupTemplate,
    NVLinkTest,
    TemplateValidation,
)
from gkm.hoststate.names import quoted
from gkm.templates.encoding import encoded, stored_bytes
from gkm.templates.merge import merge_patch
from gkm.templates.values import Json, TemplateInvalid, TooLarge, check_levels

MAX_NAME = 1_024
"""Limit of characters of a name with its expressions; the search for expressions takes quadratic time."""
_EXPRESSION = re.compile(r"\{([{%])[-+]?(.*?)[-+]?([%}])\}", re.DOTALL)
_TOKEN = re.compile(r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\w+|\S""", re.DOTALL)

Identity = tuple[str, str, str]
"""API group, kind and normalized name of an object."""


class PoolTemplate(NamedTuple):
    """A GroupTemplate reduced to the fields that planning needs."""

    name: str
    object: Json
    validation: Sequence[TemplateValidation] = ()
    nvlink_test: NVLinkTest | None = None

    @classmethod
    def of(cls, template: GroupTemplate) -> "PoolTemplate":
        """Return a GroupTemplate in the form for planning."""
        spec = template.spec
        return cls(template.metadata.name, spec.template, spec.validation, spec.nvlink_test)

    @property
    def rules(self) -> list[str]:
        """Return the expressions of the template's validation rules."""
        return [rule.expression for rule in self.validation]


def identity(template: Json) -> Identity:
    """Return which object a template creates: API group, kind and normalized name.

    Raises:
        TemplateInvalid: apiVersion, kind or metadata.name is missing, or is no text.
    """
    metadata = template.get("metadata")
    version = _text(template, "apiVersion", "apiVersion")
    kind = _text(template, "kind", "kind")
    name = _text(metadata if isinstance(metadata, dict) else {}, "name", "metadata.name")
    if len(name) > MAX_NAME:
        raise TemplateInvalid(f"metadata.name has more than {MAX_NAME} characters")
    return version.rpartition("/")[0], kind, _EXPRESSION.sub(_normalized, name)


def merged(templates: Sequence[PoolTemplate]) -> list[Json]:
    """Merge the templates of a Pool and return one template for each object, in the order of first mention.

    Raises:
        TemplateInvalid: a template has no identity, two name different versions of one object, or the result exceeds
            MAX_TEMPLATES, MAX_TEMPLATE_BYTES in an object or MAX_GROUP_BYTES.
    """
    objects: dict[Identity, Json] = {}
    first: dict[Identity, str] = {}
    for template in templates:
        try:
            check_levels(template.object)
            key = identity(template.object)
        except TemplateInvalid as error:
            raise TemplateInvalid(f"GroupTemplate {quoted(template.name)}: {error}") from None
        target = objects.get(key)
        if target is not None and target["apiVersion"] != template.object["apiVersion"]:
            raise TemplateInvalid(
                f"GroupTemplates {quoted(first[key])} and {quoted(template.name)} name one {quoted(key[1])} in two "
                f"versions, {quoted(target['apiVersion'])} and {quoted(template.object['apiVersion'])}; use the same"
            )
        first.setdefault(key, template.name)
        # The first template is no patch: its null values stay.
        objects[key] = merge_patch(target, template.object) if target else deepcopy(template.object)
    result = list(objects.values())
    if len(result) > MAX_TEMPLATES:
        raise TemplateInvalid(f"the templates make {len(result)} objects; a group has at most {MAX_TEMPLATES}")
    for (_, kind, name), each in objects.items():
        encoded(each, MAX_TEMPLATE_BYTES, f"{quoted(kind)} {quoted(name)}: all fields together")
    size = stored_bytes(result, "all objects together")
    if size > MAX_GROUP_BYTES:  # the status of the pool has them
        raise TooLarge(
            f"all objects together take {size} bytes as the API server stores them; the limit is {MAX_GROUP_BYTES}"
        )
    return result


def _normalized(expression: re.Match[str]) -> str:
    opening, inner, closing = expression.groups()
    return f"{{{opening} {' '.join(_TOKEN.findall(inner))} {closing}}}"


def _text(fields: Json, field: str, path: str) -> str:
    value = fields.get(field)
    if isinstance(value, str) and value:
        return value
    raise TemplateInvalid(f"{path} is missing, or is no text")
