"""Change or delete single objects that the user named, with errors that say why the API server refused.

Each one names the version of the object that the command has read, so it changes no other one.
"""

from collections.abc import Callable
from typing import Any

from gkm.api.meta import ObjectMeta
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.resources import Resource

from gkm_cli.output import CommandFailed


def change(api: Api, resource: Resource[Any], read: ObjectMeta, patch: dict[str, Any]) -> None:
    """Apply a merge patch to an object, unless it has changed since it was read.

    Raises:
        CommandFailed: the API server refuses it, or the object has changed since.
    """
    metadata = {**patch.get("metadata", {}), "resourceVersion": read.resource_version}
    changed = patch | {"metadata": metadata}
    _write("change", resource, read, lambda: api.merge(resource, read.name, changed, read.namespace or None))


def delete(api: Api, resource: Resource[Any], read: ObjectMeta) -> None:
    """Delete an object, unless it has changed since it was read.

    Raises:
        CommandFailed: the API server refuses it, or the object has changed since.
    """
    version, where = read.resource_version, read.namespace or None
    _write("delete", resource, read, lambda: api.delete(resource, read.name, where, resource_version=version))


def _write(verb: str, resource: Resource[Any], read: ObjectMeta, send: Callable[[], object]) -> None:
    try:
        send()
    except ApiError as error:
        what = f"{resource.plural}.{resource.api_version.partition('/')[0]}/{read.name}"
        raise CommandFailed(f"cannot {verb} {what}: {_why(error)}") from error


def _why(error: ApiError) -> str:
    if error.conflict:
        return "it has changed since this command read it; run the command again"
    if error.not_found:
        return "it was deleted meanwhile"
    if error.forbidden:
        role = "gkm-edit, or gkm-cluster-edit for a ClusterGKMCache"
        return f"{error.message}; if you lack the right, ask an administrator to bind the ClusterRole {role}"
    return f"{error.message}; run the command again when the API server is well"
