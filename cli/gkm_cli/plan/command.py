"""`gkm plan`: what may be typed. numpy, and what brings it, are imported only when somebody plans."""

from pathlib import Path
from typing import Annotated

import typer
from gkm.packing.values import Policy

from gkm_cli.output import PROGRAM, PlanningFailed, PlanOutput

EXAMPLE = f"Example: kubectl get nodes -o json | {PROGRAM} plan --nodes - --pods pods.json --run llama.yaml"


NodesOption = Annotated[
    list[Path],
    typer.Option("--nodes", metavar="FILE", help="What `kubectl get nodes -o json` prints; - is standard input."),
]
PodsOption = Annotated[
    list[Path] | None,
    typer.Option("--pods", metavar="FILE", help="What `kubectl get pods -A -o json` prints; else all GPUs are free."),
]
RunOption = Annotated[
    list[Path],
    typer.Option("--run", metavar="FILE", help="Manifests of Runs, or what `kubectl get runs -o json` prints."),
]
PolicyOption = Annotated[
    Policy | None, typer.Option("--policy", help="Instead of what the runs and the configuration say.")
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="A GKM configuration file, for its sections topology and packing."),
]
ExplainOption = Annotated[
    bool,
    typer.Option("--explain/--no-explain", help="Whether other policies, or what would make it fit, are looked for."),
]
StandingOption = Annotated[
    Path | None,
    typer.Option(
        "--standing", metavar="FILE", help="The run's PlacementPlan: plan again, and move as little as can be."
    ),
]
WaitsOption = Annotated[
    bool,
    typer.Option("--standing-waits", help="The pods of that plan do not run yet: --pods has none of them."),
]
WhatIfOption = Annotated[
    Path | None, typer.Option("--what-if", metavar="FILE", help="One more Run: what would it change?")
]
SecondsOption = Annotated[
    float, typer.Option("--seconds", min=0.1, max=600, help="How long a better batch of several runs is looked for.")
]
ImageOption = Annotated[str, typer.Option("--image", help="The image in the Jobs of -o manifests.")]
OutputOption = Annotated[PlanOutput, typer.Option("-o", "--output", help="How the answer is written.")]


def plan(
    *,
    nodes: NodesOption,
    run: RunOption,
    pods: PodsOption = None,
    policy: PolicyOption = None,
    config: ConfigOption = None,
    explain: ExplainOption = True,
    standing: StandingOption = None,
    standing_waits: WaitsOption = False,
    what_if: WhatIfOption = None,
    seconds: SecondsOption = 5.0,
    image: ImageOption = "replace-me",
    output: OutputOption = PlanOutput.TABLE,
) -> None:
    """Say where the groups of runs would go, offline, and why; exit 3 when a run does not fit."""
    try:
        from gkm_cli.plan.planning import PlanOptions, print_plan  # noqa: PLC0415 -- no other command waits for numpy
    except ModuleNotFoundError as error:
        raise PlanningFailed(
            f"{error.name} is not installed; install GKM with its extra: pip install '.[cli]'"
        ) from error

    given = PlanOptions(
        nodes=tuple(nodes),
        pods=tuple(pods or ()),
        runs=tuple(run),
        policy=policy,
        config=config,
        explains=explain,
        previous_plan=standing,
        pods_pending=standing_waits,
        what_if=what_if,
        seconds=seconds,
        image=image,
    )
    print_plan(given, output)
