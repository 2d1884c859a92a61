"""The options of `gkm plan`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from gkm.packing.values import Policy

from gkm_cli.output import ManifestOutput


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """Their values; `previous_plan` and `pods_pending` are --standing and --standing-waits."""

    nodes: Annotated[
        list[Path],
        typer.Option("--nodes", metavar="FILE", help="The output of `kubectl get nodes -o json`; - is standard input."),
    ]
    runs: Annotated[
        list[Path],
        typer.Option("--run", metavar="FILE", help="Manifests of Runs, or the output of `kubectl get runs -o json`."),
    ]
    pods: Annotated[
        list[Path] | None,
        typer.Option(
            "--pods", metavar="FILE", help="The output of `kubectl get pods -A -o json`; without it, all GPUs are free."
        ),
    ] = None
    policy: Annotated[
        Policy | None, typer.Option("--policy", help="Override the policy of the runs and of the configuration.")
    ] = None
    config: Annotated[
        Path | None,
        typer.Option("--config", help="A GKM configuration file; its sections topology and packing count."),
    ] = None
    explains: Annotated[
        bool,
        typer.Option(
            "--explain/--no-explain", help="Compare other policies, or search for changes that make the run fit."
        ),
    ] = True
    previous_plan: Annotated[
        Path | None,
        typer.Option(
            "--standing", metavar="FILE", help="The run's PlacementPlan: plan again, and move as little as possible."
        ),
    ] = None
    pods_pending: Annotated[
        bool,
        typer.Option("--standing-waits", help="The pods of that plan do not run yet, so --pods does not list them."),
    ] = False
    what_if: Annotated[
        Path | None, typer.Option("--what-if", metavar="FILE", help="One more Run: show what it would change.")
    ] = None
    seconds: Annotated[
        float,
        typer.Option("--seconds", min=0.1, max=600, help="The time to search for a better batch of several runs."),
    ] = 5.0
    image: Annotated[str, typer.Option("--image", help="The image in the Jobs of -o manifests.")] = "replace-me"
    output: Annotated[ManifestOutput, typer.Option("-o", "--output", help="The output format.")] = ManifestOutput.TABLE
