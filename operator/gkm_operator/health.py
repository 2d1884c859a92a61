"""Liveness, readiness and metrics over plain HTTP, on a separate port, for kubelet and Prometheus."""

from collections.abc import Callable
from http import HTTPStatus

from gkm.probes.messages import Page, error_page
from gkm.probes.server import PageServer

from gkm_operator import metrics

OK = Page(b"ok\n")
NOT_READY = error_page(HTTPStatus.SERVICE_UNAVAILABLE, "not ready")
NOT_ALIVE = error_page(HTTPStatus.SERVICE_UNAVAILABLE, "the event loop of the webhook hangs")


def health_server(
    address: tuple[str, int], ready: Callable[[], bool], alive: Callable[[], bool] = lambda: True
) -> PageServer:
    """Return a server of /healthz, /readyz and /metrics, until `close`.

    `alive` must be false when the process hangs and only a restart helps. The controllers need no such check: a leader
    whose threads hang does not renew its lease, and the process ends by itself. `alive` and `ready` must not wait.
    """
    pages = {
        "/healthz": lambda: OK if alive() else NOT_ALIVE,
        "/readyz": lambda: OK if ready() else NOT_READY,
        "/metrics": metrics.page,
    }
    return PageServer(address, pages)
