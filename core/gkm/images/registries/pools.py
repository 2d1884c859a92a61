"""The connection pools of a registry and its redirect targets: one pool for each proxy."""

from threading import Lock
from typing import Any

import urllib3
from urllib3 import PoolManager, ProxyManager
from urllib3.exceptions import HTTPError

from gkm.api.remedies import Remedy
from gkm.images.registries.addresses import Address
from gkm.images.registries.connections import DeadlinePool, DeadlineTLSPool
from gkm.images.registries.proxies import Proxy, proxy_for

TIMED_OUT = "it did not answer in time"


class ConnectionPools:
    """The connections of one registry, verified with `ca_file` or the authorities of the system. Thread-safe."""

    def __init__(self, ca_file: str) -> None:
        self._ca_file = ca_file
        self._pools: dict[Proxy | None, PoolManager] = {}
        self._lock = Lock()

    def pool_for(self, address: Address) -> PoolManager:
        """Return the connections for an address; a redirect may need another proxy, or none.

        Raises:
            InvalidProxy: the environment names an invalid proxy.
        """
        proxy = proxy_for(address)
        with self._lock:
            if proxy not in self._pools:
                self._pools[proxy] = self._make_pool(proxy)
            return self._pools[proxy]

    def _make_pool(self, proxy: Proxy | None) -> PoolManager:
        options: dict[str, Any] = {
            "num_pools": 4,
            "maxsize": 4,
            "retries": False,
            "headers": {"User-Agent": "gkm", "Accept-Encoding": "identity"},
            "ca_certs": self._ca_file or None,
        }
        pools = (
            ProxyManager(proxy.url, proxy_headers=dict(proxy.headers), **options) if proxy else PoolManager(**options)
        )
        pools.pool_classes_by_scheme = {"http": DeadlinePool, "https": DeadlineTLSPool}
        return pools


def remedy_of(error: HTTPError) -> str:
    """Return the remedy for an error; "" where only a retry can help."""
    return Remedy.TRUST_OR_PLAIN_HTTP if isinstance(error, urllib3.exceptions.SSLError) else ""


def describe_error(error: HTTPError) -> str:
    """Return the cause of an error in plain words."""
    match error:
        case urllib3.exceptions.NameResolutionError():
            return "its name cannot be resolved"
        case urllib3.exceptions.SSLError():
            return "its certificate is not trusted, or it does not speak TLS"
        case urllib3.exceptions.ProxyError():
            return "its proxy does not answer"
        case urllib3.exceptions.NewConnectionError():  # a subclass of ConnectTimeoutError, so it comes first
            return "it refuses connections"
        case (
            urllib3.exceptions.ConnectTimeoutError()
            | urllib3.exceptions.ReadTimeoutError()
            | urllib3.exceptions.ProtocolError(args=(_, TimeoutError()))  # during a send
        ):
            return TIMED_OUT
    return "the connection broke"
