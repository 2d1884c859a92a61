"""GKM's client for the registries of tests, which speak plain HTTP."""

from gkm.api.config import Registries, RegistryHost
from gkm.images.registries.registry import Registry


def plain_client(host: str) -> Registry:
    """Return a client without credentials for `host`, by HTTP."""
    return Registry(Registries(hosts={host: RegistryHost(plain_http=True)}))
