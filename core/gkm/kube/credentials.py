"""The credentials of a kubeconfig or a pod, loaded again when the API server refuses them.

The official client reads the token file of a kubeconfig only once, and a pod's token file once a minute.
"""

import logging
import os
import time
from collections.abc import Callable, Mapping
from threading import Lock

from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration
from kubernetes.config import ConfigException, load_incluster_config, load_kube_config

from gkm.hoststate.logs import fields
from gkm.kube.errors import UNAUTHORIZED, ApiError

_LOG = logging.getLogger(__name__)

RELOAD_SECONDS = 10.0
"""Minimum seconds between two loads of refused credentials: the API server caches a token as long."""

_CONNECTIONS = 16


class NotConfigured(ValueError):
    """No usable kubeconfig exists, and this process does not run in a pod."""


class ApiCredentials:
    """The current client of the official library and its credentials; `load` creates it from files. Thread-safe."""

    def __init__(self, load: Callable[[], ApiClient]) -> None:
        self._load = load
        self.client = load()
        self._loading = Lock()
        self._next_load = 0.0

    def renew(self, refused: ApiClient) -> bool:
        """Return whether the credentials now differ from the `refused` ones; reload the files at most every 10 s."""
        with self._loading:
            if self.client is not refused:
                return True
            if time.monotonic() < self._next_load:
                return False
            self._next_load = time.monotonic() + RELOAD_SECONDS
            try:
                client = self._load()
            except Exception as error:  # noqa: BLE001 -- a file that is being replaced may be anything
                why = type(error).__name__  # not the message: it may quote the file
            else:
                # An empty token file: without a token, the server would refuse requests as forbidden, not unauthorized.
                lost = refused.configuration.api_key and not client.configuration.api_key
                why = "there is no token" if lost else ""
            if why:
                _LOG.warning("API server credentials not reloaded, the old ones stay in use", extra=fields(why=why))
                return False
            self.client = client
        _LOG.info("API server credentials reloaded")
        return True


def load_client(kubeconfig: str | None, context: str | None) -> ApiClient:
    """Return a client of the official library as `gkm.kube.client.connect` describes; raise NotConfigured."""
    configuration = Configuration()
    configuration.connection_pool_maxsize = _CONNECTIONS
    configuration.keep_alive = True
    try:
        if "KUBERNETES_SERVICE_HOST" in os.environ and not kubeconfig and not os.environ.get("KUBECONFIG"):
            load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            load_kube_config(  # type: ignore[no-untyped-call]
                kubeconfig, context, client_configuration=configuration, persist_config=False
            )
    except (ConfigException, OSError) as error:
        raise NotConfigured(f"no kubeconfig or pod credentials for the Kubernetes API: {error}") from error
    return ApiClient(configuration)


def authorization(client: ApiClient) -> Mapping[str, str]:
    """Return the Authorization header of a client; empty if it authenticates by a certificate.

    Raises:
        ApiError: 401, for a token that no header can hold. The error of http.client would contain the token.
    """
    headers: dict[str, str] = {}
    client.update_params_for_auth(headers, [], ["BearerToken"], "", "", None)
    # A file ends with a newline, which the official client includes in the token.
    token = " ".join(headers.get("authorization", "").split(maxsplit=1)).rstrip()
    if not (token.isascii() and token.isprintable()):
        raise ApiError(UNAUTHORIZED, "Unauthorized", "the token is not one line of ASCII, so it was not sent")
    return {"authorization": token} if token else {}
