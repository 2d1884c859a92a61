"""Reads, applies and deletes objects as kubectl does, but in this process: kubectl takes 0.1 s of a core each time."""

import json
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import urllib3
from support.host.waiting import scaled, until

Json = dict[str, Any]
_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_AS_KUBECTL = urlencode({"fieldManager": "kubectl", "force": "true", "fieldValidation": "Strict"})
_OK, _CREATED, _NOT_FOUND = 200, 201, 404


class RequestFailed(RuntimeError):
    """The API server has no such kind, refused, or did not answer."""


@dataclass(frozen=True)
class _Place:
    """The path of an API group, and the plural of a kind in it."""

    root: str
    plural: str
    namespaced: bool

    def path(self, namespace: str | None) -> str:
        return f"{self.root}/namespaces/{namespace}/{self.plural}" if namespace else f"{self.root}/{self.plural}"


class Objects:
    """The objects of an API server by their kind, in each form that kubectl takes: `pod`, `pods`, `Pod`."""

    def __init__(self, url: str, context: ssl.SSLContext) -> None:
        self._url = url
        self._pool = urllib3.PoolManager(ssl_context=context, maxsize=4)
        self._places: dict[str, _Place] = {}

    def get(self, kind: str, name: str, namespace: str | None = None) -> Json:
        """Return an object, or {} if there is none; `namespace` is `default` unless given.

        Raises:
            RequestFailed: the API server has no such kind, refused, or did not answer.
        """
        place = self._place(kind)
        found = self._read(f"{place.path((namespace or 'default') if place.namespaced else None)}/{name}")
        return _without_managers(found)

    def every(self, kind: str, namespace: str | None = None, **selectors: str) -> list[Json]:
        """Return the objects of a namespace, or of all; `selectors` are fieldSelector and labelSelector.

        Raises:
            RequestFailed: the API server has no such kind, refused, or did not answer.
        """
        found = self._read(f"{self._place(kind).path(namespace)}?{urlencode(selectors)}")
        return [_without_managers(one) for one in found["items"]]

    def apply(self, wanted: Mapping[str, Any], subresource: str = "") -> None:
        """Apply an object as `kubectl apply --server-side --force-conflicts` does.

        Raises:
            RequestFailed: the API server has no such kind, refused, or did not answer.
        """
        path = "/".join(filter(None, [self._path_of(wanted), subresource]))
        kind = {"Content-Type": "application/apply-patch+yaml"}
        self._request("PATCH", f"{path}?{_AS_KUBECTL}", json.dumps(wanted).encode(), kind)

    def delete(self, unwanted: Mapping[str, Any]) -> None:
        """Delete an object as `kubectl delete --force --grace-period=0 --ignore-not-found` does, and wait for its end.

        Raises:
            RequestFailed: the API server has no such kind, refused, or did not answer.
            TimeoutError: finalizers hold the object.
        """
        path = self._path_of(unwanted)
        self._request("DELETE", f"{path}?gracePeriodSeconds=0", None, {})
        until(lambda: not self._read(path), f"the end of {path}")

    def _path_of(self, wanted: Mapping[str, Any]) -> str:
        metadata, version = wanted["metadata"], wanted["apiVersion"]
        place = self._found(f"{wanted['kind'].lower()} {'/apis' if '/' in version else '/api'}/{version}")
        return f"{place.path(metadata.get('namespace', 'default') if place.namespaced else None)}/{metadata['name']}"

    def _place(self, kind: str) -> _Place:
        return self._found(kind.lower())

    def _found(self, word: str) -> _Place:
        if word not in self._places:
            # A definition may have come since.
            self._places = dict(self._discovered())
        if word not in self._places:
            raise RequestFailed(f"the server doesn't have a resource type {word!r}")
        return self._places[word]

    def _discovered(self) -> Iterator[tuple[str, _Place]]:
        """Yield the kinds of all groups by their names; of equal ones, the last is the preferred one."""
        for root in ("/apis", "/api"):
            for group in reversed(self._read(root, _DISCOVERY)["items"]):
                name = group["metadata"].get("name", "")
                for version in reversed(group["versions"]):
                    path = "/".join(filter(None, [root, name, version["version"]]))
                    for found in version.get("resources", []):
                        place = _Place(path, found["resource"], found["scope"] == "Namespaced")
                        plural, kind = found["resource"], found["responseKind"]["kind"].lower()
                        for word in (plural, kind, f"{plural}.{name}", f"{kind} {path}"):
                            yield word, place

    def _read(self, path: str, accept: str = "application/json") -> Json:
        return self._request("GET", path, None, {"Accept": accept})

    def _request(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Json:
        """Return what the API server answers; {} if it has no object to read or delete."""
        try:
            answer = self._pool.request(method, f"{self._url}{path}", body=body, headers=headers, timeout=scaled(30))
        except urllib3.exceptions.HTTPError as error:
            raise RequestFailed(f"{path}: {error}") from error
        if method != "PATCH" and answer.status == _NOT_FOUND:
            return {}
        if answer.status not in (_OK, _CREATED):
            raise RequestFailed(f"{path}: {answer.status} {answer.data.decode(errors='replace')}")
        found: Json = json.loads(answer.data)
        return found


def _without_managers(found: Json) -> Json:
    """Return an object as kubectl prints it."""
    found.get("metadata", {}).pop("managedFields", None)
    return found
