"""Mirrors of a registry, by containerd's mirror protocol."""

import re
from urllib.parse import quote

from gkm.api.config import Registries, RegistryHost
from gkm.images.registries.registry import Registry
from gkm.images.registries.transport import TransportLimits
from support.images.cache_registry import PATIENT, Site
from support.registry import faults
from support.registry.faults import Fault
from support.registry.server import Registry as RealRegistry


def insists_on_namespace(registry: str) -> Fault:
    """Refuse every request that does not name exactly this registry, once, in the query parameter `ns`."""
    named = rf"ns={re.escape(quote(registry, safe=''))}"
    return faults.status(rf"^(?!(?:[^?]*\?(?:(?!ns=)[^&]*&)*{named}(?:&(?!ns=)[^&]*)*)$)", 400)


def client_through(site: Site, mirror: RealRegistry, limits: TransportLimits = PATIENT) -> Registry:
    """Return a client that reads the registry of a site through a mirror."""
    hosts = {
        site.real.host: RegistryHost(plain_http=True, mirrors=[mirror.host]),
        mirror.host: RegistryHost(plain_http=True),
    }
    return Registry(Registries(hosts=hosts), limits=limits)
