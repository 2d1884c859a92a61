"""From what was typed to what is printed: files are read, runs decided, and the answer told."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from gkm.api import config
from gkm.api.config import Config
from gkm.api.grammar import count_of
from gkm.packing.asked import kinds
from gkm.packing.values import Plan, Policy, Refusal

from gkm_cli.answers import No, Output, WrongUsage, show
from gkm_cli.bars import bars
from gkm_cli.plan import answer as answers
from gkm_cli.plan import deciding, files, manifests, queueing, runs, snapshot, standing, telling, telling_queue
from gkm_cli.plan.command import PlanOutput
from gkm_cli.plan.runs import Asked
from gkm_cli.plan.snapshot import Snapshot

MAX_CONFIG_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Given:
    """What was typed."""

    nodes: tuple[Path, ...]
    pods: tuple[Path, ...]
    runs: tuple[Path, ...]
    policy: Policy | None
    config: Path | None
    explains: bool
    standing: Path | None
    waits: bool
    what_if: Path | None
    seconds: float
    image: str

    @property
    def files(self) -> tuple[Path, ...]:
        """Return all files."""
        more = (self.config, self.standing, self.what_if)
        return (*self.nodes, *self.pods, *self.runs, *(path for path in more if path))


def answer(given: Given, output: PlanOutput) -> None:
    """Print where the runs go.

    Raises:
        ConfigInvalid: the configuration cannot be used.
        No: a run does not fit.
        OSError: a file cannot be read.
        Unplanned: a run and the nodes are together too large to be solved exactly.
        WrongUsage: a file is not what it should be.
    """
    files.once(given.files)
    if not given.image.strip() or given.image != given.image.strip():
        raise WrongUsage("--image is empty, or has spaces around it", "name an image")
    configured = config.parse(files.whole(given.config, MAX_CONFIG_BYTES)) if given.config else Config()
    policy = given.policy.value if given.policy else configured.packing.policy
    asked = runs.read(given.runs, policy, overrides=given.policy is not None)
    extra = _extra(given, policy, asked)
    former = standing.read(given.standing) if given.standing else None
    if former and (len(asked) > 1 or extra):
        raise WrongUsage("--standing is the plan of one run", "give that run alone")
    found = snapshot.read(given.nodes, given.pods, configured.topology)
    mix = kinds(configured.packing.mix)
    if len(asked) == 1 and extra is None:
        if former and not given.waits:
            found = found.giving_back(former.held)
        _one(deciding.decide(asked[0], found, mix, former, explains=given.explains), found, given.image, output)
    else:
        mind = queueing.Mind(mix, given.seconds, given.explains)
        with bars("planning"):
            queue = queueing.decide(asked, extra, found, mind)
        _several(queue, found, given.image, output)


def _extra(given: Given, policy: str, asked: Iterable[Asked]) -> Asked | None:
    if given.what_if is None:
        return None
    found = runs.read([given.what_if], policy, overrides=given.policy is not None)
    if len(found) > 1:
        raise WrongUsage(
            f"--what-if {files.name(given.what_if)} holds {count_of(len(found), 'run')}", "give one; others by --run"
        )
    if found[0].called in {run.called for run in asked}:
        raise WrongUsage(f"--what-if is {found[0].called}, which --run has already", "give another run")
    return found[0]


def _one(decided: deciding.Decided, found: Snapshot, image: str, output: PlanOutput) -> None:
    outcome = decided.outcome
    if output is not PlanOutput.MANIFESTS:
        show(answers.of_run(decided, found.notes), _as(output), lambda: telling.tell(decided, found.notes))
    elif isinstance(outcome, Plan):
        _apply(manifests.jobs(decided.run, outcome, decided.inventory, image))
    else:
        _refuse(decided.run, outcome)
    if isinstance(outcome, Refusal):
        raise No


def _several(queue: queueing.Queue, found: Snapshot, image: str, output: PlanOutput) -> None:
    aside = {entry: None for usable in queue.usable.values() for entry in usable.quarantined}
    if output is PlanOutput.MANIFESTS:
        for run, plan in queue.admitted:
            _apply(manifests.jobs(run, plan, queue.inventory, image))
        for refused in queue.refused:
            _refuse(refused.run, refused.refusal)
    else:
        answer = answers.of_runs(queue, aside, found.notes)
        show(answer, _as(output), lambda: telling_queue.tell(queue, tuple(aside), found.notes))
    if queue.refused:
        raise No


def _as(output: PlanOutput) -> Output:
    return Output(output.value)


def _apply(objects: Iterable[dict[str, Any]]) -> None:
    for object_ in objects:
        sys.stdout.write("---\n" + msgspec.yaml.encode(object_).decode())


def _refuse(run: Asked, refusal: Refusal) -> None:
    """Say it beside the manifests, which somebody pipes on."""
    sys.stderr.write(f"{run.called} does not fit: {refusal.message}\n")
