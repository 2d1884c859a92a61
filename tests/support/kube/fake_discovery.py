"""The documents about kinds that an API in memory serves."""

from collections.abc import Callable, Sequence
from typing import Any

from gkm.kube.errors import ApiError
from gkm.kube.resources import Resource

Json = dict[str, Any]
Served = set[tuple[str, str]] | None


def documents(kinds: Sequence[Resource[Any]], served: Served) -> Callable[[str], Json]:
    """Return the function that finds the document at a path; it raises 404 for a path that is not served."""
    found = [kind for kind in kinds if served is None or (kind.api_version, kind.plural) in served]

    def document(path: str) -> Json:
        root, _, rest = path.removeprefix("/").partition("/")
        of_version = [kind for kind in found if kind.api_version == rest]
        if of_version and (root == "apis") == ("/" in rest):
            return {"groupVersion": rest, "resources": [entry for kind in of_version for entry in _entries(kind)]}
        versions = [{"groupVersion": version, "version": version.partition("/")[2]} for version in versions_of(rest)]
        if root != "apis" or not versions:
            raise ApiError(404, "", "404 page not found")
        return {"name": rest, "versions": versions, "preferredVersion": versions[0]}

    def versions_of(group: str) -> list[str]:
        return list(dict.fromkeys(kind.api_version for kind in found if kind.api_version.partition("/")[0] == group))

    return document


def _entries(kind: Resource[Any]) -> list[Json]:
    entry = {"kind": kind.kind, "namespaced": kind.namespaced, "verbs": ["create", "delete", "get", "list", "watch"]}
    return [entry | {"name": kind.plural}, entry | {"name": f"{kind.plural}/status"}]
