"""The steps of `gkm plan`: read files, decide, print."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from gkm.api.config import Config
from gkm.hoststate.escaping import escape
from gkm.packing.values import Plan, Refusal

from gkm_cli.cells import Drawing, picture
from gkm_cli.clusters.options import ClusterOptions
from gkm_cli.inputs import files
from gkm_cli.output import CommandFailed, NegativeResult, UsageError, print_manifests, show
from gkm_cli.page import Page
from gkm_cli.plan import json_output, plan_files, render, runs, single_run, snapshot
from gkm_cli.plan.options import PlanOptions, PlanOutput, RunFlags
from gkm_cli.plan.pictures import drawing
from gkm_cli.plan.runs import ParsedRun
from gkm_cli.plan.snapshot import SurveyedCluster
from gkm_cli.progress import waiting
from gkm_cli.terminal import Sheet, Terminal

_DRAWN = (PlanOutput.SVG, PlanOutput.HTML)


def print_plan(options: PlanOptions, run_flags: RunFlags, where: ClusterOptions) -> None:
    """Print the plan of the run of `gkm plan`, or why it does not fit.

    Raises:
        ConfigInvalid: the configuration cannot be used.
        NegativeResult: the run does not fit.
        OSError: a file cannot be read.
        CommandFailed: the run and the nodes together are too large for an exact solution.
        UsageError: a file does not hold what its option needs.
    """
    files.check_stdin_once(options.files)
    runs.check(run_flags, with_files=bool(options.runs))
    if options.claims and not options.pods:
        raise UsageError("--claims is given without --pods", "give both, or neither to read the cluster")
    if options.pods and not options.nodes:
        raise UsageError("--pods is given without --nodes", "give both, or neither to read the cluster")
    if not options.image.strip() or options.image != options.image.strip():
        raise UsageError("--image is empty, or has spaces around it", "name an image")
    configured = files.configured(options.config)
    run = runs.read(options.runs, configured.packing.policy, options.policy) if options.runs else None
    previous = plan_files.read(options.previous_plan) if options.previous_plan else None
    cluster, configured = _snapshot(options, where, run, configured)
    default = configured.packing.policy
    if run is None:
        run = runs.parse(runs.manifest(run_flags, cluster.node_gpus), default, options.policy)
    else:
        run = run.with_default(default)
    cluster = cluster.with_request_note([run.demand.pod])
    if previous and not options.pods_pending and not cluster.own_is_free:
        cluster = cluster.with_freed_gpus(previous.groups)
    decision = single_run.decide(run, cluster, configured.packing.mix, previous, explains=options.explains)
    _print_run(decision, cluster, options)


def _snapshot(
    options: PlanOptions, where: ClusterOptions, own: ParsedRun | None, config: Config
) -> tuple[SurveyedCluster, Config]:
    """Return the snapshot of the lists, or of the cluster without any, and the configuration for it.

    Without --config, it is the one of the cluster's controllers.
    """
    if options.nodes:
        where.check_unnamed()
        return snapshot.read(options.nodes, options.pods or [], config.topology, options.claims or []), config
    from gkm_cli.clusters.connection import connected  # noqa: PLC0415 -- only with a cluster: it takes half a second
    from gkm_cli.clusters.topology import read_config  # noqa: PLC0415 -- as above
    from gkm_cli.clusters.usage import RunName  # noqa: PLC0415 -- as above
    from gkm_cli.plan import live  # noqa: PLC0415 -- as above

    with waiting("reading the cluster"):
        try:
            cluster = connected(where)
        except CommandFailed as error:
            raise CommandFailed(f"{error}; or give lists with --nodes and --pods") from error
        names = {RunName(own.namespace or cluster.namespace, own.name)} if own else set[RunName]()
        found, notes = (None, ()) if options.config else read_config(cluster.api)
        config = found or config
        surveyed = live.read(cluster, names, config.topology)
        return replace(surveyed, notes=(*notes, *surveyed.notes)), config


def _print_run(decision: single_run.RunDecision, cluster: SurveyedCluster, options: PlanOptions) -> None:
    outcome = decision.outcome
    if options.output in _DRAWN:
        groups = outcome.groups if isinstance(outcome, Plan) else ()
        drawn = drawing(f"Plan of {decision.run.qualified_name}", cluster.survey, decision.inventory, groups)
        _print_drawn(
            drawn,
            options.output,
            render.captions(decision),
            partial(render.render_run, decision=decision, notes=cluster.notes),
        )
    elif options.output is not PlanOutput.MANIFESTS:
        result = json_output.run_result(decision, cluster.notes)
        show(result, options.output, lambda: render.render_run(Terminal(), decision, cluster.notes))
    elif isinstance(outcome, Plan):
        print_manifests(json_output.jobs(decision.run, outcome, decision.inventory, options.image))
    else:
        _print_refusal(decision.run, outcome)
    if isinstance(outcome, Refusal):
        raise NegativeResult


def _print_drawn(
    drawn: Drawing, output: PlanOutput, captions: Sequence[str], print_text: Callable[[Sheet], None]
) -> None:
    """Print a picture, or a page with the picture and what the table has."""
    if output is PlanOutput.SVG:
        lines: Iterable[str] = picture(drawn, captions)
    else:
        page = Page(drawn.box.title.partition(": ")[0])
        print_text(page)
        page.picture(picture(drawn, ()), at=1)  # below the verdict
        lines = page.html()
    sys.stdout.writelines(f"{line}\n" for line in lines)


def _print_refusal(run: ParsedRun, refusal: Refusal) -> None:
    """Print a refusal on standard error, because standard output may be piped to kubectl."""
    sys.stderr.write(escape(f"{run.qualified_name} does not fit: {refusal.message}") + "\n")
