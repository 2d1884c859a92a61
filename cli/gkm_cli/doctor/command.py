"""The command `gkm doctor`, which imports the Kubernetes client only when it runs."""

from gkm_cli.doctor.options import DoctorOptions
from gkm_cli.output import PROGRAM

EXAMPLE = f"Example: {PROGRAM} doctor --context production"


def doctor(options: DoctorOptions) -> None:
    """Find faults in a cluster, their causes and the next steps; exit 3 if there is a problem."""
    from gkm_cli.doctor.diagnosis import diagnose  # noqa: PLC0415 -- its imports would slow down every other command

    diagnose(options)
