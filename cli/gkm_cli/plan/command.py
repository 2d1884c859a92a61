"""The command `gkm plan`, which imports numpy and its users only when it runs."""

from gkm_cli.output import CommandFailed
from gkm_cli.plan.options import PlanOptions


def plan(options: PlanOptions) -> None:
    """Plan offline where the groups of runs go, and explain it; exit 3 if a run does not fit."""
    try:
        from gkm_cli.plan.planning import print_plan  # noqa: PLC0415 -- numpy would slow down every other command
    except ModuleNotFoundError as error:
        raise CommandFailed(
            f"{error.name} is not installed; install GKM with its extra: pip install '.[cli]'"
        ) from error

    print_plan(options)
