"""The credentials of providers from Secrets of GKM's namespace; never in arguments, environments or messages."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass

from gkm.api.errors import GKMError, Reason
from gkm.images.registries.pull_secrets import Secrets


@dataclass(frozen=True)
class SecretCredentials:
    """Reads Secrets through the API, each time anew."""

    secrets: Secrets
    namespace: str

    def read(self, secret: str) -> Mapping[str, bytes]:
        """Return the data of a Secret, decoded.

        Raises:
            GKMError: it does not exist, may not be read, or is not base64.
        """
        data = self.secrets.data(self.namespace, secret)
        try:
            return {key: base64.b64decode(value, validate=True) for key, value in data.items()}
        except (binascii.Error, ValueError):
            raise GKMError(
                Reason.UNAUTHORIZED, f"Secret {self.namespace}/{secret} is not base64", "create it anew"
            ) from None
