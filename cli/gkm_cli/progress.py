"""Bars that show how far long work is: on a terminal only, on standard error, and in no pipe.

A bar appears when its stage begins, with bytes, of how many, and how fast; it ends at 100 %.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

_NAME = "{task.description}"


@contextmanager
def progress_bars(*stages: str) -> Iterator[Callable[[str, int, int], None]]:
    """Give what is told of each stage how many bytes are done, of how many."""
    columns = (BarColumn(), TaskProgressColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    with _progress(*columns) as progress:
        tasks = {stage: progress.add_task(stage, total=None, visible=False) for stage in stages}

        def tell(stage: str, done: int, total: int) -> None:
            progress.update(tasks[stage], completed=min(done, total), total=total, visible=True)

        yield tell


@contextmanager
def waiting(stage: str) -> Iterator[None]:
    """Show that work goes on of which nobody knows how long it takes."""
    with _progress(SpinnerColumn("line"), TimeElapsedColumn()) as progress:
        progress.add_task(stage, total=None)
        yield


def _progress(*columns: ProgressColumn) -> Progress:
    named = TextColumn(_NAME, markup=False)
    return Progress(named, *columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True)
