"""Read one Secret by its name; RBAC must allow it."""

from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct, field

from gkm.api.errors import GKMError, Reason
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.resources import Resource

DEFAULT_NAMESPACE = "gkm-system"
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class _Secret(Struct):
    data: dict[str, str] = field(default_factory=dict)


SECRETS: Resource[_Secret] = Resource("v1", "Secret", "secrets", namespaced=True, type=_Secret)


def own_namespace() -> str:
    """Return the namespace of this process's pod; DEFAULT_NAMESPACE outside of a pod."""
    try:
        return _NAMESPACE_FILE.read_text(encoding="ascii").strip() or DEFAULT_NAMESPACE
    except (OSError, UnicodeDecodeError):
        return DEFAULT_NAMESPACE


@dataclass(frozen=True)
class KubeSecrets:
    """Reads Secrets from the Kubernetes API, for pull credentials."""

    api: Api

    def data(self, namespace: str, name: str) -> dict[str, str]:
        """Return the data of a Secret, in base64.

        Raises:
            GKMError: UNAUTHORIZED if it does not exist or GKM may not read it, NODE_ERROR if the API server fails.
        """
        try:
            return self.api.get(SECRETS, name, namespace).data
        except ApiError as error:
            if error.not_found:
                raise secret_missing(namespace, name) from error
            if error.forbidden:
                raise GKMError(
                    Reason.UNAUTHORIZED,
                    f"GKM may not read Secret {namespace}/{name}",
                    "allow it by a RoleBinding, as deploy/samples/pull-secret.yaml does",
                ) from error
            raise GKMError(Reason.NODE_ERROR, f"Secret {namespace}/{name} cannot be read now: {error}") from error


def secret_missing(namespace: str, name: str) -> GKMError:
    """Return the error for a pull Secret that does not exist."""
    return GKMError(
        Reason.UNAUTHORIZED,
        f"Secret {namespace}/{name} does not exist",
        "create it, or remove it from imagePullSecrets (or registries.hosts.<host>.credentialsSecret)",
    )
