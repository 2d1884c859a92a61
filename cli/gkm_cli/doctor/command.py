"""The command `gkm doctor`, which imports the Kubernetes client only when it runs."""

from gkm_cli.clusters.options import ClusterOptions
from gkm_cli.doctor.options import DoctorOptions


def doctor(cluster: ClusterOptions, options: DoctorOptions) -> None:
    """Find faults in a cluster, their causes and the next steps; exit 3 if there is a problem."""
    from gkm_cli.doctor.diagnosis import diagnose  # noqa: PLC0415 -- its imports would slow down every other command

    diagnose(cluster, options)
