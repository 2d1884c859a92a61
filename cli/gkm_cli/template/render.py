"""The steps of `gkm template render`: read files, check and render as admission does, print.

The objects go to standard output, so that kubectl can read them; refusals and warnings go to standard error.
"""

import sys
from collections.abc import Iterable, Sequence
from contextlib import closing

from gkm.api.task_group_settings import TaskGroups
from gkm.api.task_groups import Pool, TaskGroup
from gkm.hoststate.escaping import escape
from gkm.hoststate.names import quoted
from gkm.templates.claims import claim_template_of
from gkm.templates.planning import (
    findings,
    merged_objects,
    planned_objects,
    sample_object,
    sample_objects,
)
from gkm.templates.pools import PoolTemplate
from gkm.templates.rendering.process import RenderingProcess
from gkm.templates.rendering.renderer import Renderer
from gkm.templates.values import Json, RenderingUnavailable, TemplateInvalid

from gkm_cli.inputs import files
from gkm_cli.output import CommandFailed, ManifestOutput, NegativeResult, UsageError, line, print_manifests, show, table
from gkm_cli.template import manifests
from gkm_cli.template.options import RenderOptions

MAX_REFUSALS = 20
"""After so many, the other templates are not checked: each check of a hostile one takes up to six seconds."""


def print_objects(options: RenderOptions) -> None:
    """Print the objects that a TaskGroup would get from its Pool's templates.

    Raises:
        NegativeResult: the group, or a template of its pool, would be refused.
        CommandFailed: rendering is not possible now.
        ConfigInvalid: the configuration cannot be used.
        OSError: a file cannot be read.
        UsageError: a file does not hold what its option needs.
    """
    files.check_stdin_once([*options.templates, options.pool, options.group, options.config])
    settings = files.configured(options.config).task_groups
    templates = manifests.read_templates(options.templates)
    pools = manifests.read_pools(options.pool)
    group = manifests.read_group(options.group) if options.group else None
    if group is None and len(pools) != 1:
        raise UsageError(f"--pool {files.name(options.pool)} holds {len(pools)} Pools", "choose one with --group")
    try:
        with closing(RenderingProcess()) as renderer:
            pool = _pool(group, pools)
            chosen = _templates(pool, templates)
            _check(chosen, settings, renderer)
            objects = (
                planned_objects(group, chosen, settings, renderer)
                if group
                else sample_objects(merged_objects(chosen), settings, renderer)
            )
    except TemplateInvalid as error:
        _report("refused", [str(error)])
        raise NegativeResult from error
    except RenderingUnavailable as error:
        raise CommandFailed(str(error)) from error
    if options.output is ManifestOutput.MANIFESTS:
        print_manifests(objects)
    else:
        show(objects, options.output, lambda: _print_table(objects))


def _pool(group: TaskGroup | None, pools: Sequence[Pool]) -> Pool:
    for pool in pools:
        if group is None or pool.metadata.name == group.spec.pool:
            return pool
    name = quoted(group.spec.pool) if group else ""
    raise TemplateInvalid(f"the TaskGroup names the Pool {name}, which --pool does not hold")


def _templates(pool: Pool, templates: dict[str, PoolTemplate]) -> list[PoolTemplate]:
    names = pool.spec.common_group_templates
    if missing := ", ".join(quoted(name) for name in names if name not in templates):
        name = quoted(pool.metadata.name)
        raise TemplateInvalid(f"Pool {name} names GroupTemplates that --templates does not hold: {missing}")
    return [templates[name] for name in names]


def _check(templates: Iterable[PoolTemplate], settings: TaskGroups, renderer: Renderer) -> None:
    """Check each template as admission does when it is written; raise NegativeResult if one is refused."""
    refusals: list[str] = []
    for template in templates:
        where = f"GroupTemplate {quoted(template.name)}"
        try:
            found = findings(template, settings, renderer)
            if not found.errors:
                sample_object(template, settings, renderer)
        except TemplateInvalid as error:
            refusals.append(f"{where}: {error}")
        else:
            refusals += [f"{where}: {error}" for error in found.errors]
            _report("warning", [f"{where}: {warning}" for warning in found.warnings])
        if len(refusals) >= MAX_REFUSALS:
            break
    if refusals:
        _report("refused", refusals)
        raise NegativeResult


def _print_table(objects: Sequence[Json]) -> None:
    if not objects:
        line("the group gets no objects")
        return
    table(
        ("kind", "name", "namespace", "apiVersion"),
        [
            (each["kind"], *(each["metadata"][key] for key in ("name", "namespace")), each["apiVersion"])
            for each in objects
        ],
    )
    if template := claim_template_of(objects):
        line(f"task pods get the claim compute-domain-channel from the ResourceClaimTemplate {template}")


def _report(kind: str, messages: Iterable[str]) -> None:
    for message in messages:
        sys.stderr.write(f"{kind}: {escape(message)}\n")
