"""The options of `gkm status`."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

StatusOutput = StrEnum("StatusOutput", "TABLE JSON YAML HTML")
"""The output formats of `gkm status`."""


@dataclass(frozen=True, kw_only=True)
class StatusOptions:
    """The options of `gkm status`: what to show, and in which format."""

    namespace: Annotated[
        str,
        typer.Option("-n", "--namespace", help="Show only this namespace, and leave out what is of the whole cluster."),
    ] = ""
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Show it again every few seconds, until Ctrl-C.")] = False
    output: Annotated[
        StatusOutput,
        typer.Option("-o", "--output", help="The output format; html is a page with pictures, for a file."),
    ] = StatusOutput.TABLE
