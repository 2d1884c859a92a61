"""`gkm node`: show this machine as the agent sees it."""

import typer
from gkm.gpus import preflight
from gkm.gpus.groups import groups
from gkm.gpus.inventory import InventoryReader

from gkm_cli.lazy_commands import CommandGroup, PlainCommand
from gkm_cli.output import PROGRAM, CommandFailed, Output, OutputOption, line, show, table

app = typer.Typer(cls=CommandGroup, rich_markup_mode=None, help="Show this machine.", no_args_is_help=True)


@app.callback()
def node() -> None:
    """Show this machine."""


@app.command(cls=PlainCommand, epilog=f"Example: {PROGRAM} node detect -o json")
def detect(output: OutputOption = Output.TABLE) -> None:
    """Show GPUs, driver and NVLink fabric; exit 1 if a GPU is lost, or GPUs or their driver are not readable."""
    reading = InventoryReader().read()
    faults = [*reading.errors, *preflight.unusable(reading.gpus)]
    gpu_groups = groups(reading.gpus)
    rows = [
        (",".join(map(str, group.ids)), group.gpu_type, group.arch, group.driver_version, group.memory_mib)
        for group in gpu_groups
    ]
    print_text = (
        (lambda: table(("gpus", "model", "arch", "driver", "memory MiB"), rows))
        if rows
        else (lambda: line("the GPUs are not readable" if faults else "this machine has no GPU"))
    )
    show({"gpus": gpu_groups, "errors": faults}, output, print_text)
    if faults:
        raise CommandFailed(f"{'; '.join(faults)}; check nvidia-smi or amd-smi, and dmesg, on this machine")
