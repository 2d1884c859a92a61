"""The registry of captured images, with the credentials that may write there."""

import msgspec

from gkm.api.config import Config
from gkm.images.reference import Reference
from gkm.images.registries.pull_secrets import PullSecrets, Secrets
from gkm.images.registries.registry import Registry


def writable(config: Config, secrets: Secrets, namespace: str, ref: Reference) -> Registry:
    """Return the registry of an image itself without its mirrors, which may have an older copy.

    The credentials are read anew: those of `capture.credentialsSecret` in GKM's own `namespace`, or else those of the
    registry's host.

    Raises:
        GKMError: the credentials cannot be read.
    """
    configured = config.registries
    hosts = {name: msgspec.structs.replace(host, mirrors=[]) for name, host in configured.hosts.items()}
    registries = msgspec.structs.replace(configured, hosts=hosts)
    secret = config.capture.credentials_secret
    credentials = PullSecrets(secrets, registries, namespace).credentials(str(ref), None, [secret] if secret else [])
    return Registry(registries, credentials)
