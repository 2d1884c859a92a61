"""The options of `gkm status`."""

from dataclasses import dataclass
from typing import Annotated

import typer

from gkm_cli.output import Output, OutputOption


@dataclass(frozen=True, kw_only=True)
class StatusOptions:
    """What to show, and how."""

    namespace: Annotated[
        str,
        typer.Option("-n", "--namespace", help="Show only this namespace, and leave out what is of the whole cluster."),
    ] = ""
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Show it again every few seconds, until Ctrl-C.")] = False
    output: OutputOption = Output.TABLE
