"""The command `gkm status`, which imports the Kubernetes client only when it runs."""

from gkm_cli.clusters.options import ClusterOptions
from gkm_cli.output import UsageError
from gkm_cli.status.options import StatusOptions, StatusOutput


def status(cluster: ClusterOptions, options: StatusOptions) -> None:
    """Show the state of a cluster: nodes, caches, pods, domains, runs and problems; exit 1 if a part is not known."""
    if options.watch and options.output is not StatusOutput.TABLE:
        raise UsageError(f"--watch is given with -o {options.output.value}", "give one of the two")
    from gkm_cli.status.showing import show_status  # noqa: PLC0415 -- its imports would slow down every other command

    show_status(cluster, options)
