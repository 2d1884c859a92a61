"""From what was typed to what is printed: files are read, runs decided, and the answer told."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gkm.api import config, documents
from gkm.api.config import Config
from gkm.api.grammar import count_of
from gkm.hoststate.escaping import escape
from gkm.packing.asked import kinds
from gkm.packing.values import Plan, Policy, Refusal

from gkm_cli.output import NegativeResult, Output, PlanOutput, UsageError, show, takes_unicode
from gkm_cli.plan import files, manifests, runs, snapshot
from gkm_cli.plan import json_output as answers
from gkm_cli.plan import previous_plan as standing
from gkm_cli.plan import render as telling
from gkm_cli.plan import render_batch as telling_queue
from gkm_cli.plan import run_batch as queueing
from gkm_cli.plan import single_run as deciding
from gkm_cli.plan.runs import ParsedRun
from gkm_cli.plan.snapshot import ClusterSnapshot
from gkm_cli.progress import waiting


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What was typed."""

    nodes: tuple[Path, ...]
    pods: tuple[Path, ...]
    runs: tuple[Path, ...]
    policy: Policy | None
    config: Path | None
    explains: bool
    previous_plan: Path | None
    pods_pending: bool
    what_if: Path | None
    seconds: float
    image: str

    @property
    def files(self) -> tuple[Path, ...]:
        """Return all files."""
        more = (self.config, self.previous_plan, self.what_if)
        return (*self.nodes, *self.pods, *self.runs, *(path for path in more if path))


def print_plan(options: PlanOptions, output: PlanOutput) -> None:
    """Print where the runs go.

    Raises:
        ConfigInvalid: the configuration cannot be used.
        No: a run does not fit.
        OSError: a file cannot be read.
        Unplanned: a run and the nodes are together too large to be solved exactly.
        WrongUsage: a file is not what it should be.
    """
    files.check_stdin_once(options.files)
    if not options.image.strip() or options.image != options.image.strip():
        raise UsageError("--image is empty, or has spaces around it", "name an image")
    configured = _configured(options.config)
    policy = options.policy.value if options.policy else configured.packing.policy
    parsed_runs = runs.read(options.runs, policy, overrides=options.policy is not None)
    extra = _extra(options, policy, parsed_runs)
    previous = standing.read(options.previous_plan) if options.previous_plan else None
    if previous and (len(parsed_runs) > 1 or extra):
        raise UsageError("--standing is the plan of one run", "give that run alone")
    cluster = snapshot.read(options.nodes, options.pods, configured.topology)
    mix = kinds(configured.packing.mix)
    if len(parsed_runs) == 1 and extra is None:
        if previous and not options.pods_pending:
            cluster = cluster.with_freed_gpus(previous.gpus_by_node)
        _print_run(
            deciding.decide(parsed_runs[0], cluster, mix, previous, explains=options.explains),
            cluster,
            options.image,
            output,
        )
    else:
        batch_options = queueing.BatchOptions(mix, options.seconds, options.explains)
        with waiting("planning"):
            queue = queueing.decide(parsed_runs, extra, cluster, batch_options)
        _print_batch(queue, cluster, options.image, output)


def _configured(path: Path | None) -> Config:
    if path is None:
        return Config()
    return config.parse(files.read_all(path, config.MAX_BYTES), f"configuration {files.name(path)}")


def _extra(options: PlanOptions, policy: str, parsed_runs: Iterable[ParsedRun]) -> ParsedRun | None:
    if options.what_if is None:
        return None
    cluster = runs.read([options.what_if], policy, overrides=options.policy is not None)
    if len(cluster) > 1:
        raise UsageError(
            f"--what-if {files.name(options.what_if)} holds {count_of(len(cluster), 'run')}",
            "give one; others by --run",
        )
    if cluster[0].qualified_name in {run.qualified_name for run in parsed_runs}:
        raise UsageError(f"--what-if is {cluster[0].qualified_name}, which --run has already", "give another run")
    return cluster[0]


def _print_run(decided: deciding.RunDecision, cluster: ClusterSnapshot, image: str, output: PlanOutput) -> None:
    outcome = decided.outcome
    if output is not PlanOutput.MANIFESTS:
        show(
            answers.run_result(decided, cluster.notes),
            _table_output(output),
            lambda: telling.render_run(decided, cluster.notes),
        )
    elif isinstance(outcome, Plan):
        _print_manifests(manifests.jobs(decided.run, outcome, decided.inventory, image))
    else:
        _print_refusal(decided.run, outcome)
    if isinstance(outcome, Refusal):
        raise NegativeResult


def _print_batch(queue: queueing.BatchDecision, cluster: ClusterSnapshot, image: str, output: PlanOutput) -> None:
    quarantined = {entry: None for usable in queue.usable.values() for entry in usable.quarantined}
    if output is PlanOutput.MANIFESTS:
        for run, plan in queue.admitted:
            _print_manifests(manifests.jobs(run, plan, queue.inventory, image))
        for refused in queue.refused:
            _print_refusal(refused.run, refused.refusal)
    else:
        answer = answers.batch_result(queue, quarantined, cluster.notes)
        show(
            answer, _table_output(output), lambda: telling_queue.render_batch(queue, tuple(quarantined), cluster.notes)
        )
    if queue.refused:
        raise NegativeResult


def _table_output(output: PlanOutput) -> Output:
    return Output(output.value)


def _print_manifests(objects: Iterable[dict[str, Any]]) -> None:
    for object_ in objects:
        sys.stdout.write("---\n" + documents.encode(object_, ascii_only=not takes_unicode()))


def _print_refusal(run: ParsedRun, refusal: Refusal) -> None:
    """Say it beside the manifests, which somebody pipes on."""
    sys.stderr.write(escape(f"{run.qualified_name} does not fit: {refusal.message}") + "\n")
