"""`gkm node`: this machine as the agent sees it."""

import typer
from gkm.gpus import inventory
from gkm.gpus.groups import groups

from gkm_cli.output import PROGRAM, Output, OutputOption, line, show, table

app = typer.Typer(help="This machine.", no_args_is_help=True)


@app.callback()
def node() -> None:
    """Commands about this machine."""


@app.command(epilog=f"Example: {PROGRAM} node detect -o json")
def detect(output: OutputOption = Output.TABLE) -> None:
    """Show GPUs, driver and NVLink fabric."""
    reading = inventory.read()
    found = groups(reading.gpus)
    rows = [
        (",".join(map(str, group.ids)), group.gpu_type, group.arch, group.driver_version, group.memory_mib)
        for group in found
    ]
    people = (
        (lambda: table(("gpus", "model", "arch", "driver", "memory MiB"), rows))
        if rows
        else (lambda: line("no GPU: " + ("; ".join(reading.errors) or "none was found")))
    )
    show({"gpus": found, "errors": reading.errors}, output, people)
