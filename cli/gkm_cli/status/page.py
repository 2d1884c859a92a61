"""A status as a page: what the screen has, with more rows, below a picture of the topology and one of the caches."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from gkm.api.topology_settings import Topology

from gkm_cli.cells import Drawing, picture
from gkm_cli.clusters.connection import ClusterConnection
from gkm_cli.output import CommandFailed
from gkm_cli.page import Page
from gkm_cli.plan import live
from gkm_cli.status import drawings, screen
from gkm_cli.status.parts import Caches, NotKnown, Status

ROWS = 100


def html(status: Status, topology: Drawing | NotKnown | None) -> Iterator[str]:
    """Yield the HTML lines of the status page; `topology` is None for the status of a namespace."""
    page = Page("GKM status")
    screen.render(page, status, ROWS)
    page.heading("Caches by node")
    if isinstance(status.caches, Caches):
        page.picture(picture(drawings.caches(status.caches), ()))
    else:
        screen.not_known(page, status.caches)
    if topology is not None:
        page.heading("Topology and plans")
    if isinstance(topology, Drawing):
        page.picture(picture(topology, ()))
    elif topology is not None:
        screen.not_known(page, topology)
    yield from page.html()


def topology(cluster: ClusterConnection, settings: Callable[[], Topology]) -> Drawing | NotKnown:
    """Return the picture of the topology, with notes, from nodes, pods and plans as `gkm plan` reads them."""
    try:
        snapshot = live.read(cluster, (), settings())
    except CommandFailed as failure:
        why, _, hint = str(failure).rpartition("; ")
        return NotKnown(why, hint)
    drawn = drawings.topology(snapshot.survey, snapshot.usage, snapshot.reserved)
    return replace(drawn, notes=(*drawn.notes, *snapshot.notes))
