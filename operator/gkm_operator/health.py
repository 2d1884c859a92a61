"""Liveness and readiness over plain HTTP, for a process that serves nothing else."""

from collections.abc import Callable
from http import HTTPStatus

from gkm.probes.messages import Page, refusal
from gkm.probes.server import PageServer

OK = Page(b"ok\n")


class HealthServer(PageServer):
    """Serves /healthz (this process answers) and /readyz (`ready` says yes) until `close`."""

    def __init__(self, address: tuple[str, int], ready: Callable[[], bool]) -> None:
        not_ready = refusal(HTTPStatus.SERVICE_UNAVAILABLE, "not ready")
        super().__init__(address, {"/healthz": lambda: OK, "/readyz": lambda: OK if ready() else not_ready})
