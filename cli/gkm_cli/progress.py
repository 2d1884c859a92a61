"""Progress bars on standard error, for terminals only.

A bar appears when its stage begins, shows bytes, total and speed, and ends at 100 %.
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


@contextmanager
def progress_bars(*stages: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar for each stage; yield a function that takes a stage, the bytes done and the total."""
    columns = (BarColumn(), TaskProgressColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    with _progress(*columns) as progress:
        tasks = {stage: progress.add_task(stage, total=None, visible=False) for stage in stages}

        def report(stage: str, done: int, total: int) -> None:
            progress.update(tasks[stage], completed=min(done, total), total=total, visible=True)

        yield report


@contextmanager
def waiting(stage: str) -> Iterator[None]:
    """Show a spinner during work of unknown duration."""
    with _progress(SpinnerColumn("line"), TimeElapsedColumn()) as progress:
        progress.add_task(stage, total=None)
        yield


def _progress(*columns: ProgressColumn) -> Progress:
    named = TextColumn("{task.description}", markup=False)
    return Progress(named, *columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True)
