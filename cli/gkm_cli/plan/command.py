"""The options of `gkm plan`. The command imports numpy and its users only when it runs."""

from pathlib import Path
from typing import Annotated

import typer
from gkm.packing.values import Policy

from gkm_cli.output import PROGRAM, PlanningFailed, PlanOutput

EXAMPLE = f"Example: kubectl get nodes -o json | {PROGRAM} plan --nodes - --pods pods.json --run llama.yaml"


NodesOption = Annotated[
    list[Path],
    typer.Option("--nodes", metavar="FILE", help="The output of `kubectl get nodes -o json`; - is standard input."),
]
PodsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--pods", metavar="FILE", help="The output of `kubectl get pods -A -o json`; without it, all GPUs are free."
    ),
]
RunOption = Annotated[
    list[Path],
    typer.Option("--run", metavar="FILE", help="Manifests of Runs, or the output of `kubectl get runs -o json`."),
]
PolicyOption = Annotated[
    Policy | None, typer.Option("--policy", help="Override the policy of the runs and of the configuration.")
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="A GKM configuration file; its sections topology and packing count."),
]
ExplainOption = Annotated[
    bool,
    typer.Option("--explain/--no-explain", help="Compare other policies, or search for changes that make the run fit."),
]
StandingOption = Annotated[
    Path | None,
    typer.Option(
        "--standing", metavar="FILE", help="The run's PlacementPlan: plan again, and move as little as possible."
    ),
]
WaitsOption = Annotated[
    bool,
    typer.Option("--standing-waits", help="The pods of that plan do not run yet, so --pods does not list them."),
]
WhatIfOption = Annotated[
    Path | None, typer.Option("--what-if", metavar="FILE", help="One more Run: show what it would change.")
]
SecondsOption = Annotated[
    float, typer.Option("--seconds", min=0.1, max=600, help="The time to search for a better batch of several runs.")
]
ImageOption = Annotated[str, typer.Option("--image", help="The image in the Jobs of -o manifests.")]
OutputOption = Annotated[PlanOutput, typer.Option("-o", "--output", help="The output format.")]


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
    """Plan offline where the groups of runs go, and explain it; exit 3 if a run does not fit."""
    try:
        from gkm_cli.plan.planning import PlanOptions, print_plan  # noqa: PLC0415 -- numpy would slow down every other command
    except ModuleNotFoundError as error:
        raise PlanningFailed(
            f"{error.name} is not installed; install GKM with its extra: pip install '.[cli]'"
        ) from error

    options = PlanOptions(
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
    print_plan(options, output)
