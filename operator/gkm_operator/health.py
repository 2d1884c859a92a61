"""Liveness and readiness over plain HTTP, for a process that serves nothing else."""

from collections.abc import Callable, Mapping
from http import HTTPStatus

from gkm.probes.messages import Page, error_page
from gkm.probes.server import PageServer

OK = Page(b"ok\n")
NO_PAGES: Mapping[str, Callable[[], Page]] = {}


class HealthServer(PageServer):
    """Serves /healthz (this process answers), /readyz (`ready` says yes) and `more` pages until `close`."""

    def __init__(
        self, address: tuple[str, int], ready: Callable[[], bool], more: Mapping[str, Callable[[], Page]] = NO_PAGES
    ) -> None:
        not_ready = error_page(HTTPStatus.SERVICE_UNAVAILABLE, "not ready")
        pages = {"/healthz": lambda: OK, "/readyz": lambda: OK if ready() else not_ready}
        super().__init__(address, {**pages, **more})
