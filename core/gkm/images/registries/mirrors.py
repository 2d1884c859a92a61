"""Requests to mirrors, by the protocol of containerd. Pure.

A mirror may serve many registries. It learns the one that is meant from the query parameter `ns`, which containerd adds
to every request for another host than the registry itself (containerd, docs/hosts.md, "Registry Host Namespace"; core/
remotes/docker, addNamespace). So Spegel, Dragonfly and pull-through registries serve GKM as they serve containerd.
"""

from urllib.parse import urlencode

NAMESPACE = "ns"
_HUB, _HUB_REGISTRY = "docker.io", "registry-1.docker.io"


def is_mirror(host: str, registry: str) -> bool:
    """Return whether a request to `host` for an image of `registry` goes to a mirror."""
    return host != registry and (registry, host) != (_HUB, _HUB_REGISTRY)


def path_at(host: str, registry: str, path: str) -> str:
    """Return the path, with its query, of a request to `host` for an object of `registry`.

    A mirror may repeat `ns` in the address of the next page: it gets the parameter once, from us.
    """
    if not is_mirror(host, registry):
        return path
    bare, _, query = path.partition("?")
    parameters = [part for part in query.split("&") if part and part.partition("=")[0] != NAMESPACE]
    return f"{bare}?{'&'.join([*parameters, urlencode({NAMESPACE: registry})])}"
