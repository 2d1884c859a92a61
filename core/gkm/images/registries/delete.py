"""Delete a manifest from a registry (distribution-spec 1.1, "Deleting Manifests")."""

from gkm.api.errors import GKMError, Reason
from gkm.images.reference import Reference
from gkm.images.registries.hosts import failure
from gkm.images.registries.registry import Registry
from gkm.images.registries.responses import read_body
from gkm.images.registries.transport import FORBIDDEN, NOT_FOUND, RETRYABLE_STATUSES, RegistryRequest

MAX_RESPONSE_BYTES = 64 << 10
_DONE = frozenset({200, 202, 204})
_FIRST_CLIENT_ERROR, _FIRST_SERVER_ERROR = 400, 500


def manifest(registry: Registry, ref: Reference) -> None:
    """Delete the manifest of a pinned reference, and with it the tags that name it; one that is gone is no error.

    Raises:
        GKMError: NOT_ALLOWED if the registry does not delete, UNAUTHORIZED if it refuses these credentials;
            REGISTRY_UNAVAILABLE.
    """
    registry.check_allowed(ref)
    url = registry.url(ref.registry, ref.repository, f"manifests/{ref.target}")
    deadline = registry.deadline()
    with registry.send(ref.registry, ref.repository, RegistryRequest("DELETE", url), "delete", deadline) as response:
        status = response.status
        if status in _DONE:
            read_body(response, MAX_RESPONSE_BYTES, deadline)
            return
    # Some registries answer 404 to every deletion.
    if status == NOT_FOUND and not _exists(registry, ref):
        return
    refused = _FIRST_CLIENT_ERROR <= status < _FIRST_SERVER_ERROR and status not in RETRYABLE_STATUSES
    if refused and status != FORBIDDEN:
        raise GKMError(Reason.NOT_ALLOWED, f"{ref} cannot be deleted: the registry answers {status}")
    raise failure(ref, status, "deleted")


def _exists(registry: Registry, ref: Reference) -> bool:
    try:
        registry.manifest(ref)
    except GKMError as error:
        if error.reason is Reason.NOT_FOUND:
            return False
        raise
    return True
