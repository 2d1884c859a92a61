"""The options of `gkm doctor`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from gkm_cli.output import Output, OutputOption


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """The checks to run, and the form of the output."""

    namespace: Annotated[
        str,
        typer.Option("-n", "--namespace", help="Check only this namespace, and leave out checks of the whole cluster."),
    ] = ""
    grace_seconds: Annotated[
        float,
        typer.Option("--grace", metavar="SECONDS", min=0, max=86_400, help="Accept an unfinished state for this long."),
    ] = 60.0
    checks: Annotated[
        list[str] | None, typer.Option("--check", metavar="NAME", help="Only this check, or area; may be repeated.")
    ] = None
    output: OutputOption = Output.TABLE
    bundle: Annotated[
        Path | None,
        typer.Option("--bundle", metavar="FILE", help="Write what support needs, without secrets: a .tar.gz file."),
    ] = None
