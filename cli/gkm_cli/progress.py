"""Progress on standard error: bars on a terminal; elsewhere, plain lines for work that takes long.

A bar appears when its stage begins, shows bytes, total and speed, and ends at 100 %. A log or a pipe gets a whole line
every few seconds, and no line from a short command.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer
from typing import TYPE_CHECKING

from gkm.hoststate.escaping import escape

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

PAUSE_SECONDS = 5.0
"""Seconds between two lines, and before the first."""
_MIB = 1 << 20
Report = Callable[[str, int, int], None]
"""Called with the name of a stage, the bytes done and the total bytes."""


@contextmanager
def progress_bars(*stages: str) -> Iterator[Report]:
    """Show a bar for each stage; yield a function that takes a stage, the bytes done and the total."""
    if not sys.stderr.isatty():
        yield PlainReport(_write)
        return
    from rich.progress import (  # noqa: PLC0415 -- only a terminal has bars
        BarColumn,
        DownloadColumn,
        TaskProgressColumn,
        TransferSpeedColumn,
    )

    columns = (BarColumn(), TaskProgressColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    with _progress(*columns) as progress:
        tasks = {stage: progress.add_task(stage, total=None, visible=False) for stage in stages}

        def report(stage: str, done: int, total: int) -> None:
            progress.update(tasks[stage], completed=min(done, total), total=total, visible=True)

        yield report


@contextmanager
def waiting(stage: str) -> Iterator[None]:
    """Show a spinner during work of unknown duration."""
    if not sys.stderr.isatty():
        with _announced(stage):
            yield
        return
    from rich.progress import SpinnerColumn, TimeElapsedColumn  # noqa: PLC0415 -- as above

    with _progress(SpinnerColumn("line"), TimeElapsedColumn()) as progress:
        progress.add_task(stage, total=None)
        yield


class PlainReport:
    """Lines of progress, one every PAUSE_SECONDS at most."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._next = clock() + PAUSE_SECONDS

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Print a line if PAUSE_SECONDS have passed since the last one."""
        if (now := self._clock()) < self._next:
            return
        self._next = now + PAUSE_SECONDS
        percent = 100 * min(done, total) // total if total else 100
        self._write(f"{stage}: {percent} % of {total / _MIB:.1f} MiB")


@contextmanager
def _announced(stage: str) -> Iterator[None]:
    """Write a line when the block takes long."""
    timer = Timer(PAUSE_SECONDS, _write, (f"{stage} ...",))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _write(text: str) -> None:
    sys.stderr.write(f"{escape(text)}\n")
    sys.stderr.flush()


def _progress(*columns: "ProgressColumn") -> "Progress":
    from rich.console import Console  # noqa: PLC0415 -- as above
    from rich.progress import Progress, TextColumn  # noqa: PLC0415 -- as above

    named = TextColumn("{task.description}", markup=False)
    return Progress(named, *columns, console=Console(stderr=True), transient=True)
