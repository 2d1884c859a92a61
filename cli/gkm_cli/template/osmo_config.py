"""OSMO's configuration, reduced to its group templates and pools; each field that is left out becomes a note. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gkm.hoststate.names import quoted
from gkm.templates.groups import MAX_NAME
from gkm.templates.values import Json

SPELLINGS = ("common_group_templates", "common_group_template", "override_group_templates")
"""Of the templates of a pool: the first is that of OSMO's code, the others those of its design document."""
MAX_DESCRIPTION = 1024
_SECTIONS = {"group_templates": "group_templates", "groupTemplates": "group_templates", "pools": "pools"}
_HELM_VALUES = ("services", "configs")
_NOT_ALLOWED = re.compile(r"[^a-z0-9]+")


class OsmoConfigInvalid(ValueError):
    """The text is no configuration of OSMO; the message says where and why."""


class Note(NamedTuple):
    """A note about the conversion for its user. `kind` is dropped, renamed, differs or refused."""

    kind: str
    subject: str
    text: str


@dataclass(slots=True)
class OsmoConfig:
    """Group templates, and for each pool its description and templates, by OSMO's names."""

    templates: dict[str, Json] = field(default_factory=dict)
    pools: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)

    def add(self, where: str, config: Json) -> None:
        """Add the configuration in a file.

        Raises:
            OsmoConfigInvalid: it has neither section, or a name occurs twice.
        """
        for key in _HELM_VALUES:
            if isinstance(inner := config.get(key), dict):
                self._drop(where, config.keys() - {key})
                config = inner
        if config and all(isinstance(value, dict) and "kind" in value for value in config.values()):
            config = {"group_templates": config}
        found = {section: config[key] for key, section in _SECTIONS.items() if config.get(key) is not None}
        if not found:
            raise OsmoConfigInvalid("it has neither `group_templates` nor `pools`")
        self._drop(where, config.keys() - _SECTIONS.keys())
        for name, value in _entries(found, "group_templates"):
            _check_new("group template", name, self.templates)
            self.templates[name] = self._template(name, value)
        for name, value in _entries(found, "pools"):
            _check_new("pool", name, self.pools)
            self.pools[name] = self._pool(name, value)

    def legal_names(self, what: str, names: Iterable[str]) -> dict[str, str]:
        """Return a name that Kubernetes allows for each of OSMO's, and note the changed ones.

        Raises:
            OsmoConfigInvalid: a name has no allowed form, or two of them get the same.
        """
        found: dict[str, str] = {}
        for name in names:
            legal = _NOT_ALLOWED.sub("-", name.lower())[:MAX_NAME].strip("-")
            if not legal:
                raise OsmoConfigInvalid(f"{what} {quoted(name)}: no letter or digit of it can be in a name; rename it")
            if legal in found:
                both = f"{quoted(found[legal])} and {quoted(name)}"
                raise OsmoConfigInvalid(f"{what}s {both} both become {quoted(legal)}; rename one")
            found[legal] = name
            if legal != name:
                self.notes.append(Note("renamed", f"{what} {quoted(name)}", f"is {quoted(legal)} now"))
        return {name: legal for legal, name in found.items()}

    def _template(self, name: str, template: Json) -> Json:
        metadata = template.get("metadata")
        if not isinstance(metadata, dict) or "namespace" not in metadata:
            return template
        self._drop(f"group template {quoted(name)}", ["metadata.namespace"])
        return template | {"metadata": {key: value for key, value in metadata.items() if key != "namespace"}}

    def _pool(self, name: str, pool: Json) -> tuple[str, list[str]]:
        where = f"pool {quoted(name)}"
        lists = [_names(where, key, pool[key]) for key in SPELLINGS if key in pool]
        if any(each != lists[0] for each in lists):
            keys = " and ".join(key for key in SPELLINGS if key in pool)
            raise OsmoConfigInvalid(f"{where}: {keys} differ; keep one of them")
        description = pool.get("description") or ""
        used = {*SPELLINGS, *(("name",) if pool.get("name") in (name, None) else ())}
        if isinstance(description, str) and len(description) <= MAX_DESCRIPTION:
            used.add("description")
        else:
            description = ""
        self._drop(where, [key for key in pool if key not in used])
        return description, lists[0] if lists else []

    def _drop(self, where: str, fields: Iterable[str]) -> None:
        if names := ", ".join(sorted(fields)):
            self.notes.append(Note("dropped", where, names))


def _check_new(what: str, name: str, found: Mapping[str, object]) -> None:
    if name in found:
        raise OsmoConfigInvalid(f"{what} {quoted(name)} occurs twice; give it once")


def _entries(sections: Mapping[str, Any], section: str) -> Sequence[tuple[str, Json]]:
    entries = sections.get(section, {})
    if not isinstance(entries, dict):
        raise OsmoConfigInvalid(f"`{section}` is no mapping of names")
    for name, value in entries.items():
        if not isinstance(name, str) or not isinstance(value, dict):
            raise OsmoConfigInvalid(f"`{section}`: {quoted(str(name))} is no object")
    return list(entries.items())


def _names(where: str, key: str, value: object) -> list[str]:
    if value is None:
        return []
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise OsmoConfigInvalid(f"{where}: {key} is no list of names")
    return names
