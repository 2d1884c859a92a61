"""Bars that show how far long work is: on a terminal only, on standard error, and in no pipe."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress


@contextmanager
def bars(*stages: str) -> Iterator[Callable[[str, int, int], None]]:
    """Give what is told of each stage how much is done, of how much."""
    console = Console(stderr=True)
    with Progress(console=console, disable=not sys.stderr.isatty(), transient=True) as progress:
        tasks = {stage: progress.add_task(stage, total=None) for stage in stages}
        yield lambda stage, done, total: progress.update(tasks[stage], completed=done, total=max(1, total))
