"""The steps of `gkm status`: connect, read, print, again with --watch."""

import sys
import time
from contextlib import nullcontext
from datetime import timedelta

from gkm.api.meta import timestamp

from gkm_cli.clusters.connection import ClusterConnection, connected
from gkm_cli.clusters.options import ClusterOptions
from gkm_cli.doctor.runner import ClusterReader
from gkm_cli.output import CommandFailed, show
from gkm_cli.progress import waiting
from gkm_cli.status import screen
from gkm_cli.status.options import StatusOptions, StatusOutput
from gkm_cli.status.parts import NotKnown, Status, result
from gkm_cli.status.reading import read, settings_of
from gkm_cli.terminal import Terminal

ROWS = 5
"""Rows of a table: a screen has some 50 lines, and seven parts."""
GRACE = timedelta(seconds=60)
"""As the default of gkm doctor."""
MIN_PAUSE_SECONDS = 5.0
READING_SHARE = 4.0
"""A pause is at least so many times longer than the last reading: at most a fifth of the time goes to requests."""
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"


def show_status(cluster: ClusterOptions, options: StatusOptions) -> None:
    """Print the status of a cluster, or of a namespace; with --watch until the process is interrupted.

    Raises:
        CommandFailed: there is no cluster to read, or a part of the status is not known.
    """
    connection = connected(cluster, options.namespace)
    if options.watch:
        _watch(connection, options.namespace)
    reader = _reader(connection, options.namespace)
    found = read(reader, waiting)
    if options.output is StatusOutput.HTML:
        unknown = _print_page(connection, reader, found)
    else:
        show(result(found), options.output, lambda: screen.render(Terminal(), found, ROWS))
        unknown = found.unknown
    if unknown:
        raise CommandFailed(f"not known: {', '.join(unknown)}; see the reasons above")


def _print_page(connection: ClusterConnection, reader: ClusterReader, found: Status) -> list[str]:
    """Print the page, and return the parts that are not known."""
    from gkm_cli.status import page  # noqa: PLC0415 -- only a page needs what plans are drawn with: numpy

    with waiting("reading pods and plans"):
        drawn = None if reader.namespace else page.topology(connection, lambda: settings_of(reader))
    sys.stdout.writelines(f"{line}\n" for line in page.html(found, drawn))
    return [*found.unknown, *(["topology"] if isinstance(drawn, NotKnown) else [])]


def _watch(connection: ClusterConnection, namespace: str) -> None:
    """Print the status again and again; on a terminal each takes the place of the last one."""
    while True:
        started = time.monotonic()
        # Without a spinner, which would move the screen.
        found = read(_reader(connection, namespace), lambda _: nullcontext())
        pause = max(MIN_PAUSE_SECONDS, READING_SHARE * (time.monotonic() - started))
        sys.stdout.write(_CLEAR if sys.stdout.isatty() else "\n")
        screen.render(Terminal(), found, ROWS)
        sys.stdout.flush()
        time.sleep(pause)


def _reader(connection: ClusterConnection, namespace: str) -> ClusterReader:
    cutoff = timestamp(connection.now() - GRACE)
    return ClusterReader(connection.api, namespace=namespace, cutoff=cutoff, now=connection.now)
