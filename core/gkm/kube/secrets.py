"""Reading one Secret by its name, where somebody has opened it to us."""

from dataclasses import dataclass
from dataclasses import field as dataclass_field
from pathlib import Path

from msgspec import Struct, field

from gkm.api.errors import GKMError, Reason
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.resources import Resource

DEFAULT_NAMESPACE = "gkm-system"
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_FORBIDDEN = 403


class _Secret(Struct):
    data: dict[str, str] = field(default_factory=dict)


SECRETS: Resource[_Secret] = Resource("v1", "Secret", "secrets", namespaced=True, type=_Secret)


def own_namespace() -> str:
    """Return the namespace that this process runs in: its ServiceAccount's, or ours outside a pod."""
    try:
        return _NAMESPACE_FILE.read_text(encoding="ascii").strip() or DEFAULT_NAMESPACE
    except (OSError, UnicodeDecodeError):
        return DEFAULT_NAMESPACE


@dataclass(frozen=True)
class KubeSecrets:
    """The Secrets of the Kubernetes API."""

    api: Api

    def data(self, namespace: str, name: str) -> dict[str, str]:
        """Return what a Secret holds, in base64.

        Raises:
            GKMError: UNAUTHORIZED when it is not there or not open to us, NODE_ERROR when nobody answers.
        """
        try:
            return self.api.get(SECRETS, name, namespace).data
        except ApiError as error:
            if error.not_found:
                raise secret_missing(namespace, name) from error
            if error.status == _FORBIDDEN:
                raise GKMError(
                    Reason.UNAUTHORIZED,
                    f"GKM may not read Secret {namespace}/{name}",
                    "open it by a RoleBinding, as deploy/samples/pull-secret.yaml does",
                ) from error
            raise GKMError(Reason.NODE_ERROR, f"Secret {namespace}/{name} cannot be read now: {error}") from error


@dataclass(frozen=True)
class StaticSecrets:
    """Secrets that are at hand without Kubernetes: {(namespace, name): data}."""

    secrets: dict[tuple[str, str], dict[str, str]] = dataclass_field(repr=False)

    def data(self, namespace: str, name: str) -> dict[str, str]:
        """Return what a Secret holds, in base64; raises GKMError (UNAUTHORIZED) for one that is not there."""
        if (namespace, name) not in self.secrets:
            raise secret_missing(namespace, name)
        return self.secrets[namespace, name]


def secret_missing(namespace: str, name: str) -> GKMError:
    """Return the error for a Secret that is not there."""
    return GKMError(
        Reason.UNAUTHORIZED,
        f"Secret {namespace}/{name} does not exist",
        "make it, or take it out of imagePullSecrets (or registries.hosts.<host>.credentialsSecret)",
    )
