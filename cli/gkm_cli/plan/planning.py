"""The steps of `gkm plan`: read files, decide, print."""

import sys
from collections.abc import Iterable

from gkm.api.grammar import count_of
from gkm.hoststate.escaping import escape
from gkm.packing.asked import kinds
from gkm.packing.values import Plan, Refusal

from gkm_cli.inputs import files
from gkm_cli.output import ManifestOutput, NegativeResult, Output, UsageError, print_manifests, show
from gkm_cli.plan import (
    json_output,
    manifests,
    previous_plan,
    render,
    render_batch,
    run_batch,
    runs,
    single_run,
    snapshot,
)
from gkm_cli.plan.options import PlanOptions
from gkm_cli.plan.runs import ParsedRun
from gkm_cli.plan.snapshot import ClusterSnapshot
from gkm_cli.progress import waiting


def print_plan(options: PlanOptions) -> None:
    """Print the plans of the runs.

    Raises:
        ConfigInvalid: the configuration cannot be used.
        NegativeResult: a run does not fit.
        OSError: a file cannot be read.
        CommandFailed: a run and the nodes together are too large for an exact solution.
        UsageError: a file does not hold what its option needs.
    """
    single = (options.config, options.previous_plan, options.what_if)
    files.check_stdin_once([*options.nodes, *(options.pods or []), *options.runs, *single])
    if not options.image.strip() or options.image != options.image.strip():
        raise UsageError("--image is empty, or has spaces around it", "name an image")
    configured = files.configured(options.config)
    parsed_runs = runs.read(options.runs, configured.packing.policy, options.policy)
    extra = _extra(options, configured.packing.policy, parsed_runs)
    previous = previous_plan.read(options.previous_plan) if options.previous_plan else None
    if previous and (len(parsed_runs) > 1 or extra):
        raise UsageError("--standing is the plan of one run", "give that run alone")
    cluster = snapshot.read(options.nodes, options.pods or [], configured.topology)
    mix = kinds(configured.packing.mix)
    if len(parsed_runs) == 1 and extra is None:
        if previous and not options.pods_pending:
            cluster = cluster.with_freed_gpus(previous.groups)
        decision = single_run.decide(parsed_runs[0], cluster, mix, previous, explains=options.explains)
        _print_run(decision, cluster, options)
    else:
        with waiting("planning"):
            batch = run_batch.decide(parsed_runs, extra, cluster, mix, options)
        _print_batch(batch, cluster, options)


def _extra(options: PlanOptions, default: str, parsed_runs: Iterable[ParsedRun]) -> ParsedRun | None:
    if options.what_if is None:
        return None
    extra = runs.read([options.what_if], default, options.policy)
    if len(extra) > 1:
        raise UsageError(
            f"--what-if {files.name(options.what_if)} holds {count_of(len(extra), 'run')}",
            "give one run; add others with --run",
        )
    if extra[0].qualified_name in {run.qualified_name for run in parsed_runs}:
        raise UsageError(f"--what-if is {extra[0].qualified_name}, which --run has already", "give another run")
    return extra[0]


def _print_run(decision: single_run.RunDecision, cluster: ClusterSnapshot, options: PlanOptions) -> None:
    outcome = decision.outcome
    if options.output is not ManifestOutput.MANIFESTS:
        result = json_output.run_result(decision, cluster.notes)
        show(result, Output(options.output.value), lambda: render.render_run(decision, cluster.notes))
    elif isinstance(outcome, Plan):
        print_manifests(manifests.jobs(decision.run, outcome, decision.inventory, options.image))
    else:
        _print_refusal(decision.run, outcome)
    if isinstance(outcome, Refusal):
        raise NegativeResult


def _print_batch(batch: run_batch.BatchDecision, cluster: ClusterSnapshot, options: PlanOptions) -> None:
    if options.output is ManifestOutput.MANIFESTS:
        for run, plan in batch.admitted:
            print_manifests(manifests.jobs(run, plan, batch.inventory, options.image))
        for refused in batch.refused:
            _print_refusal(refused.run, refused.refusal)
    else:
        result = json_output.batch_result(batch, cluster.notes)
        show(result, Output(options.output.value), lambda: render_batch.render_batch(batch, cluster.notes))
    if batch.refused:
        raise NegativeResult


def _print_refusal(run: ParsedRun, refusal: Refusal) -> None:
    """Print a refusal on standard error, because standard output may be piped to kubectl."""
    sys.stderr.write(escape(f"{run.qualified_name} does not fit: {refusal.message}") + "\n")
