"""The options of `gkm plan`."""

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from gkm.packing.values import Policy

_file = partial(typer.Option, metavar="FILE")
PlanOutput = StrEnum("PlanOutput", "TABLE JSON YAML MANIFESTS SVG HTML")
"""The output formats of `gkm plan`."""
UnfoldOutput = StrEnum("UnfoldOutput", "LIST JSON YAML HOSTFILE")
"""The output formats of `gkm plan unfold`."""
WithinLevel = StrEnum("WithinLevel", "DOMAIN BLOCK CLUSTER REGION")
"""The levels of the one area that a run can stay in, as in `spec.within` of a Run."""
ApartLevel = StrEnum("ApartLevel", "RACK BLOCK")
"""The levels of which each group can lie in another area, as in `spec.apart` of a Run."""


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """The options of `gkm plan`; `previous_plan` and `pods_pending` are --standing and --standing-waits."""

    nodes: Annotated[
        list[Path] | None,
        _file(
            "--nodes",
            help="The output of `kubectl get nodes -o json`; - is standard input. Without it, nodes, pods and plans of "
            "the cluster are read.",
        ),
    ] = None
    runs: Annotated[
        list[Path] | None,
        _file(
            "--run",
            help="A Run, such as the output of `kubectl get run NAME -o json`. Without it, --total-gpus describes one.",
        ),
    ] = None
    pods: Annotated[
        list[Path] | None,
        _file(
            "--pods",
            help="The output of `kubectl get pods -A -o json`, for --nodes; without it, all GPUs of these are free.",
        ),
    ] = None
    claims: Annotated[
        list[Path] | None,
        _file(
            "--claims", help="The output of `kubectl get resourceclaims -A -o json`, for --pods: their GPUs are in use."
        ),
    ] = None
    policy: Annotated[
        Policy | None, typer.Option("--policy", help="Override the policy of the runs and of the configuration.")
    ] = None
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            help="A GKM configuration file; GKM uses its sections topology and packing. Without it, GKM uses a "
            "cluster's gkm-config.",
        ),
    ] = None
    explains: Annotated[
        bool,
        typer.Option(
            "--explain/--no-explain", help="Compare other policies, or search for changes that make the run fit."
        ),
    ] = True
    previous_plan: Annotated[
        Path | None, _file("--standing", help="The run's PlacementPlan: plan again, and move as little as possible.")
    ] = None
    pods_pending: Annotated[
        bool,
        typer.Option("--standing-waits", help="The pods of that plan do not run yet, so --pods does not list them."),
    ] = False
    image: Annotated[str, typer.Option("--image", help="The image in the Jobs of -o manifests.")] = "replace-me"
    output: Annotated[
        PlanOutput,
        typer.Option(
            "-o", "--output", help="The output format; svg is a picture, html a page with picture and tables."
        ),
    ] = PlanOutput.TABLE

    @property
    def files(self) -> list[Path | None]:
        """Return the paths of the files that all options name; None for an option that is not given."""
        several = (self.nodes, self.pods, self.claims, self.runs)
        return [*(path for paths in several for path in paths or ()), self.config, self.previous_plan]


_flag = partial(typer.Option, rich_help_panel="A run from flags, without a file")


@dataclass(frozen=True, kw_only=True)
class RunFlags:
    """The flags of `gkm plan` that describe a run: the fields of a Run's spec."""

    gpus: Annotated[int | None, _flag("--total-gpus", help="Plan a run of so many GPUs, without spares.")] = None
    group: Annotated[int | None, _flag("--group", help="GPUs of one group, all in one domain; default: a pod's.")] = (
        None
    )
    pod: Annotated[
        int | None, _flag("--pod", help="GPUs of one pod, all on one node; default: all of a node, or the group's.")
    ] = None
    cpu: Annotated[str | None, _flag("--cpu", metavar="QUANTITY", help="CPUs that one pod requests, such as 64.")] = (
        None
    )
    memory: Annotated[
        str | None, _flag("--memory", metavar="QUANTITY", help="Memory that one pod requests, such as 512Gi.")
    ] = None
    spares: Annotated[int | None, _flag("--spares", help="Spare pods for each group; default: 0.")] = None
    flavor: Annotated[
        str | None,
        _flag(
            "--flavor",
            "--gpu",
            metavar="GPU",
            help="The flavor in the label of nodes, a model such as h100, or BACKEND:ARCH:WARP, such as cuda:90:32; "
            "default: the flavor of all nodes, if it is one.",
        ),
    ] = None
    selector: Annotated[
        str | None,
        _flag(
            "--selector",
            metavar="KEY=VALUE,…",
            help="Only these nodes: region and cluster come from the topology, other keys are labels.",
        ),
    ] = None
    scopes: Annotated[
        list[str] | None,
        _flag(
            "--scope",
            metavar="NAME=GPUS,KEY=VALUE,…",
            help="A budget: at most so many GPUs, spares included, on these nodes. Each group is in one scope.",
        ),
    ] = None
    within: Annotated[
        WithinLevel | None,
        _flag("--within", help="All groups and their spares in one area of this level; default: anywhere."),
    ] = None
    balanced: Annotated[bool, _flag("--balanced", help="Equally many groups in every domain that the run uses.")] = (
        False
    )
    apart: Annotated[
        ApartLevel | None, _flag("--apart", help="Each group in another rack or block, as replicas of a service.")
    ] = None
    per_area: Annotated[
        list[str] | None,
        _flag(
            "--per-area",
            metavar="LEVEL,KEY=NUMBER,…",
            help="A rule for each domain, rack, block, cluster or region, with the keys maxGroups, maxNodes and "
            "groupsTogether.",
        ),
    ] = None
    step_gpus: Annotated[
        int | None, _flag("--step-gpus", help="If the run does not fit, reduce it by multiples of this.")
    ] = None
    min_gpus: Annotated[int | None, _flag("--min-gpus", help="The size below which it is not reduced.")] = None
    name: Annotated[
        str | None, _flag("--name", help="The name of the run, for the names of its Jobs; default: run.")
    ] = None
