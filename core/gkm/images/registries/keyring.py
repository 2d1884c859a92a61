"""Match credentials with repositories by the kubelet's rules (pkg/credentialprovider/keyring.go).

Host and repository must match: `*` stands for a part of one label, so `*.example.com` matches neither `example.com` nor
`a.b.example.com`. The port must be equal, and the path must be a prefix of the repository. Entries are tried in reverse
order of their text, so that a more specific entry comes first.
"""

from collections.abc import Iterable, Sequence

from gkm.images.registries.auth import Login
from gkm.images.registries.credentials import AuthEntry, DockerConfig, split_server

DOCKER_HUB = "docker.io"
_DOCKER_HUB_KEY = "index.docker.io"
"""The key that docker writes for Docker Hub: https://index.docker.io/v1/."""


class Keyring:
    """The Credentials of several files or Secrets, such as all pull secrets of a namespace, in order. Immutable."""

    def __init__(self, configs: Iterable[DockerConfig]) -> None:
        found = [entry for config in configs for entry in config.entries]
        self._entries = sorted(found, key=lambda entry: entry.key, reverse=True)  # stable: Secrets keep their order

    def logins(self, registry: str, repository: str) -> Sequence[Login]:
        """Return the logins for a repository, the most specific first."""
        host, port, _ = split_server(registry)
        fitting = [entry.login for entry in self._entries if _matches(entry, host, port, f"/{repository}")]
        if fitting or registry != DOCKER_HUB:
            return fitting
        return [entry.login for entry in self._entries if entry.key == _DOCKER_HUB_KEY]


def _matches(entry: AuthEntry, host: str, port: str, path: str) -> bool:
    patterns, labels = entry.host.split("."), host.split(".")
    return (
        entry.port == port
        and len(patterns) == len(labels)
        and path.startswith(entry.path)
        and all(map(_label_matches, labels, patterns))
    )


def _label_matches(label: str, pattern: str) -> bool:
    """Return whether a label matches a pattern. Only `*` is a wildcard: for the kubelet no host contains `?` or `[`."""
    first, *rest = pattern.split("*")
    if not rest:
        return label == pattern
    *middle, last = rest
    if not label.startswith(first) or not label.endswith(last) or len(label) < len(first) + len(last):
        return False
    position, end = len(first), len(label) - len(last)
    for part in middle:
        found = label.find(part, position, end)
        if found < 0:
            return False
        position = found + len(part)
    return True
