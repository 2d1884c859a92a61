"""The steps of `gkm template import`: read OSMO's configuration, convert, check, print.

OSMO's configuration is reduced to its group templates and pools; each field that is left out becomes a note, as does
each value and merge that OSMO treats otherwise. The manifests go to standard output, so that kubectl can read them;
everything that a user must know goes to standard error, one note in a line.
"""

import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gkm.api.meta import API_VERSION
from gkm.api.task_group_settings import TaskGroups
from gkm.api.task_groups import MAX_TEMPLATES
from gkm.hoststate.escaping import escape
from gkm.hoststate.names import quoted
from gkm.templates.groups import MAX_NAME
from gkm.templates.merge import merge_patch
from gkm.templates.planning import findings, merged_objects, sample_object
from gkm.templates.pools import Identity, PoolTemplate, identity
from gkm.templates.rendering.process import RenderingProcess
from gkm.templates.rendering.renderer import Renderer
from gkm.templates.values import Json, RenderingUnavailable, TemplateInvalid

from gkm_cli.inputs import files
from gkm_cli.inputs.objects import ObjectsUnreadable, single_mapping
from gkm_cli.output import NegativeResult, UsageError, print_manifests
from gkm_cli.template.manifests import MAX_BYTES, MAX_VALUES
from gkm_cli.template.options import ImportOptions

CHECK_SECONDS = 60.0
"""For the checks of all templates and pools; each template may take six."""
_NOT_CHECKED = f"not checked: the checks of the others took more than {CHECK_SECONDS:g} s"
_HINT = "give OSMO's `group_templates` and `pools` as JSON or YAML (docs/reference/osmo.md)"
SPELLINGS = ("common_group_templates", "common_group_template", "override_group_templates")
"""Keys of a pool's templates: the first is in OSMO's code, the others are in its design document."""
MAX_DESCRIPTION = 1024
_SECTIONS = {"group_templates": "group_templates", "groupTemplates": "group_templates", "pools": "pools"}
_HELM_VALUES = ("services", "configs")
_NOT_ALLOWED = re.compile(r"[^a-z0-9]+")
_SHOWN = 200
"""Characters of a path in a message."""
_ARRAY = re.compile(r"ARRAY:\[")
_TYPED = re.compile(r"\{\{[^{}]*\|\s*(int|float|bool|json)\s*\}\}")


def print_imported(options: ImportOptions) -> None:
    """Print the GroupTemplates and Pools that `gkm template import` made.

    Raises:
        NegativeResult: GKM would refuse one of them.
        ConfigInvalid: the configuration cannot be used.
        OSError: a file cannot be read.
        UsageError: a file is no configuration of OSMO, or names collide.
    """
    files.check_stdin_once([*options.files, options.config])
    settings = files.configured(options.config).task_groups
    config = OsmoConfig()
    where = ""
    try:
        for path in options.files:
            where = f"{files.name(path)}: "
            config.add(files.name(path), single_mapping(files.read_all(path, MAX_BYTES), MAX_VALUES) or {})
        where = ""
        names = config.legal_names("group template", config.templates)
        pool_names = config.legal_names("pool", config.pools)
    except (ObjectsUnreadable, OsmoConfigInvalid) as error:
        raise UsageError(f"{where}{error}", _HINT) from error
    until = time.monotonic() + CHECK_SECONDS
    with closing(RenderingProcess()) as renderer:
        of_templates = list(_template_notes(config, settings, renderer, until))
    notes = [*config.notes, *of_templates, *_pool_notes(config, until)]
    print_manifests(_template(names[name], template) for name, template in config.templates.items())
    for name, (description, used) in config.pools.items():
        print_manifests([_pool(pool_names[name], description, [names.get(each, each) for each in used])])
    for note in notes:
        sys.stderr.write(f"{note.kind}: {escape(f'{note.subject}: {note.text}')}\n")
    if any(note.kind == "refused" for note in notes):
        raise NegativeResult


class Note(NamedTuple):
    """A note about the conversion for its user. `kind` is dropped, renamed, differs or refused."""

    kind: str
    subject: str
    text: str


@dataclass(slots=True)
class OsmoConfig:
    """OSMO's group templates, and for each of its pools the description and templates, by OSMO's names."""

    templates: dict[str, Json] = field(default_factory=dict)
    pools: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)

    def add(self, where: str, config: Json) -> None:
        """Add the OSMO configuration in a file.

        Raises:
            OsmoConfigInvalid: it has no such section, or a name occurs twice.
        """
        for key in _HELM_VALUES:
            if isinstance(inner := config.get(key), dict):
                self._drop(where, config.keys() - {key})
                config = inner
        if config and all(isinstance(value, dict) and "kind" in value for value in config.values()):
            config = {"group_templates": config}
        found = {section: config[key] for key, section in _SECTIONS.items() if config.get(key) is not None}
        if not found:
            raise OsmoConfigInvalid("it has no `group_templates` and no `pools`")
        self._drop(where, config.keys() - _SECTIONS.keys())
        for name, value in _entries(found, "group_templates"):
            _check_new("group template", name, self.templates)
            self.templates[name] = self._template(name, value)
        for name, value in _entries(found, "pools"):
            _check_new("pool", name, self.pools)
            self.pools[name] = self._pool(name, value)

    def legal_names(self, what: str, names: Iterable[str]) -> dict[str, str]:
        """Return a name that Kubernetes allows for each OSMO name, and note the changed names.

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


def _template_notes(config: OsmoConfig, settings: TaskGroups, renderer: Renderer, until: float) -> Iterator[Note]:
    for name, template in config.templates.items():
        where = f"group template {quoted(name)}"
        yield from (Note("differs", where, each) for each in of_values(template))
        yield from (
            Note("refused", where, each) for each in _refusals(PoolTemplate(name, template), settings, renderer, until)
        )


def _refusals(template: PoolTemplate, settings: TaskGroups, renderer: Renderer, until: float) -> Sequence[str]:
    if time.monotonic() > until:
        return [_NOT_CHECKED]
    try:
        found = findings(template, settings, renderer).errors
        if not found:
            sample_object(template, settings, renderer)
    except TemplateInvalid as error:
        return [str(error)]
    except RenderingUnavailable as error:
        return [f"not checked: {error}"]
    return found


def _pool_notes(config: OsmoConfig, until: float) -> Iterator[Note]:
    for name, (_, used) in config.pools.items():
        where = f"pool {quoted(name)}"
        if missing := ", ".join(quoted(each) for each in used if each not in config.templates):
            yield Note("refused", where, f"these group templates are not in the files: {missing}")
        elif len(used) > MAX_TEMPLATES:
            yield Note("refused", where, f"it has {len(used)} group templates; a Pool has at most {MAX_TEMPLATES}")
        elif time.monotonic() > until:
            yield Note("refused", where, _NOT_CHECKED)
        else:
            templates = [PoolTemplate(each, config.templates[each]) for each in used]
            try:
                merged_objects(templates)
            except TemplateInvalid as error:
                yield Note("refused", where, str(error))
            else:
                yield from (Note("differs", where, each) for each in of_merge(templates))


def _template(name: str, template: Json) -> Json:
    return _manifest("GroupTemplate", name, {"template": template})


def _pool(name: str, description: str, templates: list[str]) -> Json:
    described = {"description": description} if description else {}
    return _manifest("Pool", name, described | ({"commonGroupTemplates": templates} if templates else {}))


def _manifest(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


class OsmoConfigInvalid(ValueError):
    """The text is no configuration of OSMO; the message says where and why."""


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


def of_values(template: Any, path: str = "") -> Iterator[str]:  # noqa: ANN401 -- any JSON value
    """Yield the values of a template that OSMO renders to something else."""
    match template:
        case dict():
            for key, value in template.items():
                yield from of_values(value, _at(path, key))
        case list():
            for number, value in enumerate(template):
                yield from of_values(value, f"{path}[{number}]"[:_SHOWN])
        case str():
            if _ARRAY.search(template):
                yield f"{path}: ARRAY:[…] stays text; write a list, or one expression that ends in | json"
            if typed := _TYPED.fullmatch(template):
                yield f"{path}: the value gets the type {typed[1]}; in OSMO it is text"
            if template.endswith("\n"):
                yield f"{path}: the newline at the end stays; OSMO removes it"


def of_merge(templates: Sequence[PoolTemplate]) -> Iterator[str]:
    """Yield the fields of a pool's templates that OSMO merges otherwise; raises TemplateInvalid as `identity` does."""
    merged: dict[Identity, Json] = {}
    for template in templates:
        key = identity(template.object)
        if key in merged:
            yield from (f"{template.name}: {each}" for each in _of_patch(merged[key], template.object))
        merged[key] = merge_patch(merged[key], template.object) if key in merged else template.object


def _of_patch(target: Json, patch: Json, path: str = "") -> Iterator[str]:
    for key, value in patch.items():
        at, before = _at(path, key), target.get(key)
        if value is None:
            yield f"{at}: null deletes the field; OSMO stores null"
        elif isinstance(value, list) and isinstance(before, list):
            yield f"{at}: the list replaces the one before it; OSMO merges their items by name"
        elif isinstance(value, dict) and isinstance(before, dict):
            yield from _of_patch(before, value, at)


def _at(path: str, key: str) -> str:
    return f"{path}.{key}"[:_SHOWN] if path else key[:_SHOWN]
