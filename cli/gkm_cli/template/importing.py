"""The steps of `gkm template import`: read OSMO's configuration, convert, check, print.

The manifests go to standard output, so that kubectl can read them; everything that a user must know goes to standard
error, one note in a line.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing

from gkm.api.meta import API_VERSION
from gkm.api.task_group_settings import TaskGroups
from gkm.api.task_groups import MAX_TEMPLATES
from gkm.hoststate.escaping import escape
from gkm.hoststate.names import quoted
from gkm.templates.planning import PoolTemplate, findings, merged_objects, sample_object
from gkm.templates.rendering.process import RenderingProcess
from gkm.templates.rendering.renderer import Renderer
from gkm.templates.values import Json, RenderingUnavailable, TemplateInvalid

from gkm_cli.inputs import files
from gkm_cli.inputs.objects import ObjectsUnreadable, single_mapping
from gkm_cli.output import NegativeResult, UsageError, print_manifests
from gkm_cli.template import osmo_differences
from gkm_cli.template.manifests import MAX_BYTES, MAX_VALUES
from gkm_cli.template.options import ImportOptions
from gkm_cli.template.osmo_config import Note, OsmoConfig, OsmoConfigInvalid

CHECK_SECONDS = 60.0
"""For the checks of all templates and pools; each template may take six."""
_NOT_CHECKED = f"not checked: the checks of the others took more than {CHECK_SECONDS:g} s"
_HINT = "give OSMO's `group_templates` and `pools` as JSON or YAML (docs/reference/osmo.md)"


def print_imported(options: ImportOptions) -> None:
    """Print GroupTemplates and Pools.

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


def _template_notes(config: OsmoConfig, settings: TaskGroups, renderer: Renderer, until: float) -> Iterator[Note]:
    for name, template in config.templates.items():
        where = f"group template {quoted(name)}"
        yield from (Note("differs", where, each) for each in osmo_differences.of_values(template))
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
                yield from (Note("differs", where, each) for each in osmo_differences.of_merge(templates))


def _template(name: str, template: Json) -> Json:
    return _manifest("GroupTemplate", name, {"template": template})


def _pool(name: str, description: str, templates: list[str]) -> Json:
    described = {"description": description} if description else {}
    return _manifest("Pool", name, described | ({"commonGroupTemplates": templates} if templates else {}))


def _manifest(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
