"""Which hosts may have a non-public address: only hosts that the configuration names. Pure.

Users name registries, and registries name further hosts in redirects. Without this rule the control plane would connect
to any address of its network that a user names. A rule applies to a host with its port: a configured registry opens no
other port of its machine.
"""

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from gkm.api.config import Registries
from gkm.images.registries import addresses
from gkm.images.registries.addresses import NetworkKind

_Endpoint = tuple[str, int]
DOCKER_HUB = "docker.io"
HUB_REGISTRY, HUB_AUTH = "registry-1.docker.io", "auth.docker.io"
"""References name docker.io, an index: these are the hosts of its registry and of its token server."""
_HTTPS_PORT = 443
_GLOB = frozenset("*?[]")


@dataclass(frozen=True, slots=True)
class HostRules:
    """The hosts that may have a non-public address, because the configuration names them.

    `local` hosts may have any address, also on this machine: the keys of `registries.hosts`, and `authHosts`. `private`
    hosts may have a private address: mirrors, and hosts that a glob of `registries.allow` names. A glob names a host if
    its part before the first slash has no wildcard, or only `*.` before a domain of two or more labels; `*` names
    no host.
    """

    local: frozenset[_Endpoint] = frozenset()
    private: frozenset[_Endpoint] = frozenset()
    domains: tuple[str, ...] = ()
    plain: frozenset[str] = frozenset()
    """The hosts in `registries.hosts` that use http, whose default port is 80."""

    @classmethod
    def of(cls, registries: Registries, registry: str = "") -> "HostRules":
        """Return the rules for requests to `registry` and its token servers."""
        own = registries.host(registry)
        mirrors = [mirror for host in registries.hosts.values() for mirror in host.mirrors]
        allowed = [pattern.partition("/")[0] for pattern in registries.allow]
        named = [host for host in allowed if not _GLOB & set(_without_brackets(host))]
        if DOCKER_HUB in (*registries.hosts, *named):
            named += (HUB_REGISTRY, HUB_AUTH)
        plain = frozenset(name for name, host in registries.hosts.items() if host.plain_http)
        return cls(
            frozenset(_endpoints((*registries.hosts, *own.auth_hosts), plain)),
            frozenset(_endpoints((*mirrors, *named), plain)),
            tuple(host for host in allowed if _is_domain(host)),
            plain,
        )

    def permit(self, host: str, port: int, address: str) -> bool:
        """Return whether a connection to host and port may use this resolved address."""
        return self._permit(host, port, addresses.kind(address))

    def permit_host(self, host: str, port: int) -> bool:
        """Return whether the name of a host with its port is permitted; its addresses are checked after resolution."""
        return self._permit(host, port, addresses.kind_of_host(host))

    def permit_registry(self, registry: str) -> bool:
        """Return whether the name of a registry is permitted; its addresses are checked after resolution."""
        found = next(_endpoints((registry,), self.plain), None)
        return found is None or self.permit_host(*found)

    def _permit(self, host: str, port: int, kind: NetworkKind) -> bool:
        host = host.strip("[]").lower().rstrip(".")
        if kind is NetworkKind.PUBLIC or (host, port) in self.local:
            return True
        if kind is NetworkKind.LOCAL:
            return False
        name = host if port == _HTTPS_PORT else f"{host}:{port}"
        return (host, port) in self.private or any(fnmatchcase(name, domain) for domain in self.domains)


def _endpoints(names: Iterable[str], plain: Container[str]) -> Iterator[_Endpoint]:
    for name in names:
        try:
            found = addresses.parse_address(f"{'http' if name in plain else 'https'}://{name}")
        except addresses.InvalidAddress:
            continue  # no connection can use it
        yield found.host, found.port


def _is_domain(host: str) -> bool:
    """Return whether a glob is `*.` followed by a domain of two or more labels, which is no part of an address."""
    star, dot, domain = host.partition(".")
    labels = domain.partition(":")[0].split(".")
    return star == "*" and bool(dot) and not _GLOB & set(domain) and len(labels) > 1 and not labels[-1].isdigit()


def _without_brackets(host: str) -> str:
    """Return a host without the brackets of an IPv6 address, which are no wildcard."""
    return host[1:].replace("]", "", 1) if host.startswith("[") else host
