"""Where `--key` finds a key that is in no file: a variable (`env://VARIABLE`) or a Secret (`k8s://NAMESPACE/NAME`).

As in cosign, a Secret has `cosign.key`, `cosign.pub` and `cosign.password`, in the cluster that kubectl would use. Its
values reach no log and no message.
"""

import base64
import os
from dataclasses import dataclass

from gkm.api.errors import GKMError, Reason
from gkm.hoststate import names
from gkm.hoststate.names import InvalidName
from gkm.images.signatures.keys import MAX_KEY_BYTES

from gkm_cli.clusters.options import ClusterOptions
from gkm_cli.output import CommandFailed, UsageError

ENVIRONMENT, SECRET = "env://", "k8s://"
"""What a key starts with that is in no file, as in cosign."""
_PRIVATE, _PUBLIC, _PASSWORD = "cosign.key", "cosign.pub", "cosign.password"


@dataclass(frozen=True, slots=True)
class PrivateKeyText:
    """A private key as PEM, and its password, which is None if the source has no password."""

    pem: bytes
    password: bytes | None = None

    def __repr__(self) -> str:
        """Return no part of the key."""
        return "PrivateKeyText(…)"


def public_key(key: str) -> str:
    """Return the PEM text of a public key in a variable or Secret; any other value of --key as it is.

    Raises:
        UsageError: the variable is not set, or the Secret cannot have this name.
        CommandFailed: the Secret cannot be read.
        GKMError: SIGNATURE_INVALID: the Secret has no public key.
    """
    if key.startswith(ENVIRONMENT):
        return _variable(key)
    if key.startswith(SECRET):
        return _decoded(_secret(key), key, _PUBLIC).decode("utf-8", "replace")
    return key


def private_key(key: str) -> PrivateKeyText | None:
    """Return a private key in a variable or Secret; None for the path of a file. Raises as `public_key`."""
    if key.startswith(ENVIRONMENT):
        return PrivateKeyText(_variable(key).encode())
    if not key.startswith(SECRET):
        return None
    data = _secret(key)
    password = _decoded(data, key, _PASSWORD) if _PASSWORD in data else None
    return PrivateKeyText(_decoded(data, key, _PRIVATE), password)


def _variable(key: str) -> str:
    if text := os.environ.get(key.removeprefix(ENVIRONMENT)):
        return text
    raise UsageError(f"--key {key} names a variable that is not set", "export it, or name a file")


def _secret(key: str) -> dict[str, str]:
    """Return the data of a Secret, in base64."""
    # A key in a file needs no cluster, and must not wait for the client of one.
    from gkm.kube.errors import ApiError  # noqa: PLC0415
    from gkm.kube.secrets import SECRETS  # noqa: PLC0415

    from gkm_cli.clusters.connection import connected  # noqa: PLC0415

    namespace, name = _place(key)
    try:
        return connected(ClusterOptions()).api.get(SECRETS, name, namespace).data
    except ApiError as error:
        hint = f"kubectl get secret {name} -n {namespace} must work with your account"
        raise CommandFailed(f"Secret {namespace}/{name} cannot be read: {error.message}; {hint}") from error


def _place(key: str) -> tuple[str, str]:
    namespace, separator, name = key.removeprefix(SECRET).partition("/")
    try:
        if separator:
            return names.namespace(namespace), names.secret_name(name)
    except InvalidName as error:
        raise UsageError(f"--key names no Secret: {error}", "write k8s://NAMESPACE/NAME") from error
    raise UsageError("--key names no Secret", "write k8s://NAMESPACE/NAME")


def _decoded(data: dict[str, str], key: str, part: str) -> bytes:
    text = data.get(part, "")
    try:
        raw = base64.b64decode(text, validate=True) if len(text) <= 2 * MAX_KEY_BYTES else b""
    except ValueError:
        raw = b""
    if not raw and part != _PASSWORD:
        what = f"{key} has no usable {part}"
        raise GKMError(Reason.SIGNATURE_INVALID, what, f"`cosign generate-key-pair {key}` makes such a Secret")
    return raw
