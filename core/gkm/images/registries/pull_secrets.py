"""The credentials of a cache: the pull secrets that its object names, and those that the configuration names per host.

GKM reads a Secret by its name when a pull needs it and does not store it: its service accounts cannot list Secrets, and
each namespace grants access to its own (deploy/samples/pull-secret.yaml). A Secret serves only the cache that names it.
"""

import base64
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from gkm.api.config import Registries
from gkm.api.errors import GKMError, Reason
from gkm.images.reference import Reference
from gkm.images.registries import credentials
from gkm.images.registries.auth import Credentials
from gkm.images.registries.credentials import DockerConfig, Keyring

KEYS = (".dockerconfigjson", ".dockercfg")
"""The data keys of Secrets of type kubernetes.io/dockerconfigjson and kubernetes.io/dockercfg."""


class Secrets(Protocol):
    """Reads one Secret."""

    def data(self, namespace: str, name: str) -> dict[str, str]:
        """Return the data of a Secret, in base64.

        Raises:
            GKMError: UNAUTHORIZED for a missing or forbidden Secret, NODE_ERROR when the API server does not answer.
        """


@dataclass(frozen=True)
class PullSecrets:
    """Finds the credentials of caches; `namespace` is GKM's own, which holds the configuration's Secrets."""

    secrets: Secrets
    registries: Registries
    namespace: str

    def credentials(self, image: str, namespace: str | None, names: Sequence[str]) -> Credentials | None:
        """Return the credentials of a cache, the Secrets `names` of its namespace first (None: a cluster-wide cache).

        Of the configuration's Secrets, only those for the image's registry and its mirrors are read, so that a missing
        Secret of another host does not affect this cache. None if neither the cache nor the configuration names a
        Secret.

        Raises:
            GKMError: as Secrets.data and Reference.parse; UNAUTHORIZED for a Secret without credentials.
        """
        registry = Reference.parse(image).registry
        found = list(self._configs(registry, namespace, names))
        return Keyring(found) if found else None

    def _configs(self, registry: str, namespace: str | None, names: Sequence[str]) -> Iterator[DockerConfig]:
        for name in dict.fromkeys(names):
            yield self._config(namespace or self.namespace, name)
        secrets = (self.registries.host(source).credentials_secret for source in self.registries.sources(registry))
        for name in dict.fromkeys(filter(None, secrets)):
            yield self._config(self.namespace, name)

    def _config(self, namespace: str, name: str) -> DockerConfig:
        data = self.secrets.data(namespace, name)
        what = f"Secret {namespace}/{name}"
        raw = next((data[key] for key in KEYS if key in data), None)
        if raw is None:
            raise GKMError(
                Reason.UNAUTHORIZED,
                f"{what} holds no credentials of registries: it has none of the keys {', '.join(KEYS)}",
                "make it with `kubectl create secret docker-registry`",
            )
        try:
            decoded = base64.b64decode(raw, validate=True)
        except (binascii.Error, ValueError) as error:
            raise GKMError(Reason.UNAUTHORIZED, f"{what} is not base64", "make it again") from error
        return credentials.parse(decoded, what)
