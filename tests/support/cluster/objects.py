"""Reads, applies and deletes objects as kubectl does, but in this process: kubectl takes 0.1 s of a core each time."""

import copy
import json
import re
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import urllib3
from support.host.waiting import scaled, until

Json = dict[str, Any]
_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_AS_KUBECTL = urlencode({"fieldManager": "kubectl", "force": "true", "fieldValidation": "Strict"})
_REPLACED_BY_KUBECTL = urlencode({"fieldManager": "kubectl-replace", "fieldValidation": "Strict"})
_CREATED_BY_KUBECTL = urlencode({"fieldManager": "kubectl-create", "fieldValidation": "Strict"})
_WITHOUT_FINALIZERS = b'{"metadata":{"finalizers":null}}'
_JSON = {"Content-Type": "application/json"}
_MERGE = {"Content-Type": "application/merge-patch+json"}
_JSON_PATCH = {"Content-Type": "application/json-patch+json"}
_WARNING = re.compile(r'299 \S+ "(.*)"')
"""A header with a warning, by RFC 7234."""
_OK, _CREATED, _NOT_FOUND = 200, 201, 404


class RequestFailed(RuntimeError):
    """The API server has no such kind, refused, or did not answer."""


class _KindGone(RequestFailed):
    """The API server does not serve this kind in this version any more."""


def refusal(request: Callable[[], object]) -> str:
    """Return why a request failed; "" if it did not."""
    try:
        request()
    except RequestFailed as failed:
        return str(failed)
    return ""


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
        self._user: dict[str, str] = {}

    def as_user(self, user: str) -> "Objects":
        """Return the same for another user, as `kubectl --as` does; a ServiceAccount has its groups too."""
        made = copy.copy(self)
        made._user = {"Impersonate-User": user}
        return made

    def get(self, kind: str, name: str, namespace: str | None = None) -> Json:
        """Return an object, or {} if there is none; `namespace` is `default` unless given.

        Raises:
            RequestFailed: the API server has no such kind, refused, or did not answer.
        """
        return _without_managers(self._now(lambda: self._read(self._path(self._found(kind.lower()), name, namespace))))

    def every(self, kind: str, namespace: str | None = None, **selectors: str) -> list[Json]:
        """Return the objects of a namespace, or of all; `selectors` are fieldSelector and labelSelector.

        Raises:
            RequestFailed: the API server has no such kind, refused, or did not answer.
        """
        found = self._now(lambda: self._read(f"{self._found(kind.lower()).path(namespace)}?{urlencode(selectors)}"))
        return [_without_managers(one) for one in found["items"]]

    def apply(self, wanted: Mapping[str, Any], subresource: str = "") -> None:
        """Apply an object as `kubectl apply --server-side --force-conflicts` does.

        Raises:
            RequestFailed: the API server has no such kind, refused, or did not answer.
        """
        body, kind = json.dumps(wanted).encode(), {"Content-Type": "application/apply-patch+yaml"}

        def path() -> str:
            return "/".join(filter(None, [self._path_of(wanted), subresource]))

        self._now(lambda: self._request("PATCH", f"{path()}?{_AS_KUBECTL}", body, kind))

    def create(self, wanted: Mapping[str, Any], *, dry_run: bool = False) -> Json:
        """Create an object as `kubectl create [--dry-run=server]` does, and return it.

        Raises:
            RequestFailed: the API server has no such kind, refused, or did not answer.
        """
        body, query = json.dumps(wanted).encode(), f"{_CREATED_BY_KUBECTL}{'&dryRun=All' if dry_run else ''}"
        return self._now(lambda: self._request("POST", f"{self._places_of(wanted)}?{query}", body, _JSON))

    def replace(self, wanted: Mapping[str, Any]) -> None:
        """Replace an object as `kubectl replace` does, whatever its version is.

        Raises:
            RequestFailed: there is no such object, or the API server refused, or did not answer.
        """

        def put() -> Json:
            path = self._path_of(wanted)
            version = self._there(self._read(path), path)["metadata"]["resourceVersion"]
            made = {**wanted, "metadata": {**wanted["metadata"], "resourceVersion": version}}
            return self._request("PUT", f"{path}?{_REPLACED_BY_KUBECTL}", json.dumps(made).encode(), _JSON)

        self._now(put)

    def warnings(self, wanted: Mapping[str, Any], *, dry_run: bool = True) -> list[str]:
        """Return the warnings about a new object, which the API server takes and, in a dry run, does not store.

        Raises:
            RequestFailed: the API server has no such kind, refused, or did not answer.
        """
        url = f"{self._url}{self._places_of(wanted)}?{_CREATED_BY_KUBECTL}{'&dryRun=All' if dry_run else ''}"
        headers = _JSON | self._user
        answer = self._pool.request("POST", url, body=json.dumps(wanted).encode(), headers=headers, timeout=scaled(30))
        if answer.status != _CREATED:
            raise RequestFailed(f"{url}: {answer.status} {_message(answer.data)}")
        return [_WARNING.sub(r"\1", one) for one in answer.headers.getlist("Warning")]

    def schemas(self, group: str, version: str) -> list[Json]:
        """Return the schemas of an API, which `kubectl explain` shows.

        Raises:
            RequestFailed: the API server has no such API, refused, or did not answer.
        """
        return list(self._read(f"/openapi/v3/apis/{group}/{version}")["components"]["schemas"].values())

    def token(self, account: str, namespace: str, bound: tuple[str, str] | None = None) -> str:
        """Return a fresh token of a ServiceAccount; `bound` is the kind and name of a Node or Pod whose end ends it.

        Raises:
            RequestFailed: the API server refused, or did not answer.
        """
        reference = {"kind": bound[0], "apiVersion": "v1", "name": bound[1]} if bound else None
        wanted = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"boundObjectRef": reference},
        }
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        answer = self._request("POST", path, json.dumps(wanted).encode(), _JSON)
        return str(answer["status"]["token"])

    def delete_every(self, kind: str, namespace: str) -> None:
        """Delete the objects of a kind in a namespace at once, and wait for their end.

        Raises:
            RequestFailed: the API server has no such kind, refused, or did not answer.
            TimeoutError: some are still there.
        """
        path = f"{self._found(kind.lower()).path(namespace)}?gracePeriodSeconds=0"
        self._now(lambda: self._request("DELETE", path, None, {}))
        until(lambda: not self.every(kind, namespace), f"the end of all {kind} in {namespace}")

    def delete(self, unwanted: Mapping[str, Any]) -> None:
        """Delete an object at once, whatever its finalizers, and wait for its end; one that is not there is none.

        Raises:
            RequestFailed: the API server has no such kind, refused, or did not answer.
            TimeoutError: it is still there.
        """
        self._delete(lambda: self._path_of(unwanted))

    def delete_named(self, kind: str, name: str, namespace: str | None = None) -> None:
        """Delete an object as `delete` does."""
        self._delete(lambda: self._path(self._found(kind.lower()), name, namespace))

    def ask_to_delete(self, kind: str, name: str, namespace: str | None = None, **options: object) -> None:
        """Delete an object as `kubectl delete --wait=false` does; `options` are more fields of DeleteOptions.

        Raises:
            RequestFailed: there is no such kind or object, or the API server refused, or did not answer.
        """
        body = json.dumps({"propagationPolicy": "Background"} | options).encode()

        def ask() -> Json:
            path = self._path(self._found(kind.lower()), name, namespace)
            return self._there(self._request("DELETE", path, body, _JSON), path)

        self._now(ask)

    def delete_patiently(self, kind: str, name: str, namespace: str | None = None) -> None:
        """Delete an object as `kubectl delete` does, and wait until its finalizers let it go.

        Raises:
            RequestFailed: there is no such kind or object, or the API server refused, or did not answer.
            TimeoutError: it is still there.
        """
        self.ask_to_delete(kind, name, namespace)
        until(lambda: not self.get(kind, name, namespace), f"the end of {kind} {name}")

    def merge(
        self,
        kind: str,
        name: str,
        patch: Mapping[str, Any],
        namespace: str | None = None,
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> None:
        """Change an object as `kubectl patch --type=merge [--subresource] [--dry-run=server]` does.

        Raises:
            RequestFailed: there is no such kind or object, or the API server refused, or did not answer.
        """
        body, query = json.dumps(patch).encode(), "?dryRun=All" if dry_run else ""

        def path() -> str:
            return "/".join(filter(None, [self._path(self._found(kind.lower()), name, namespace), subresource]))

        self._now(lambda: self._request("PATCH", f"{path()}{query}", body, _MERGE))

    def patch(self, kind: str, name: str, steps: Sequence[Mapping[str, Any]], namespace: str | None = None) -> None:
        """Change an object as `kubectl patch --type=json` does.

        Raises:
            RequestFailed: there is no such kind or object, or the API server refused, or did not answer.
        """
        body = json.dumps(steps).encode()

        def path() -> str:
            return self._path(self._found(kind.lower()), name, namespace)

        self._now(lambda: self._request("PATCH", path(), body, _JSON_PATCH))

    def scale(self, kind: str, name: str, replicas: int, namespace: str | None = None) -> None:
        """Change the number of replicas as `kubectl scale` does."""
        self.merge(kind, name, {"spec": {"replicas": replicas}}, namespace, subresource="scale")

    def label(self, kind: str, name: str, labels: Mapping[str, str | None], namespace: str | None = None) -> None:
        """Change labels as `kubectl label --overwrite` does; None takes one away."""
        self.merge(kind, name, {"metadata": {"labels": labels}}, namespace)

    def _delete(self, find: Callable[[], str]) -> None:
        self._now(lambda: self._request("DELETE", f"{find()}?gracePeriodSeconds=0", None, {}))
        path = find()
        if self._read(path):
            self._take_finalizers(path)
        until(lambda: not self._read(path), f"the end of {path}")

    def _there(self, answer: Json, path: str) -> Json:
        if not answer:
            raise RequestFailed(f"{path}: there is no such object")
        return answer

    def _take_finalizers(self, path: str) -> None:
        try:
            self._request("PATCH", path, _WITHOUT_FINALIZERS, _MERGE)
        except RequestFailed:
            if self._read(path):
                raise  # otherwise it has gone meanwhile

    def _now(self, request: Callable[[], Json]) -> Json:
        """Return what a request returns, also if the paths of kinds have changed since the last discovery."""
        try:
            return request()
        except _KindGone:
            self._places = {}
            return request()

    def _path_of(self, wanted: Mapping[str, Any]) -> str:
        return f"{self._places_of(wanted)}/{wanted['metadata']['name']}"

    def _places_of(self, wanted: Mapping[str, Any]) -> str:
        """Return the path of all objects of a kind in the namespace of an object."""
        namespace, version = wanted.get("metadata", {}).get("namespace"), wanted["apiVersion"]
        place = self._found(f"{wanted['kind'].lower()} {'/apis' if '/' in version else '/api'}/{version}")
        return place.path((namespace or "default") if place.namespaced else None)

    def _path(self, place: _Place, name: str, namespace: str | None) -> str:
        return f"{place.path((namespace or 'default') if place.namespaced else None)}/{name}"

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
        headers = {**headers, **self._user}
        try:
            answer = self._pool.request(method, f"{self._url}{path}", body=body, headers=headers, timeout=scaled(30))
        except urllib3.exceptions.HTTPError as error:
            raise RequestFailed(f"{path}: {error}") from error
        if answer.status == _NOT_FOUND and not _names_an_object(answer.data):
            raise _KindGone(f"{path}: the API server does not serve it")
        if answer.status == _NOT_FOUND and method in {"GET", "DELETE"}:
            return {}
        if answer.status not in (_OK, _CREATED):
            raise RequestFailed(f"{path}: {answer.status} {_message(answer.data)}")
        found: Json = json.loads(answer.data)
        return found


def _names_an_object(body: bytes) -> bool:
    """Tell the answer about an object that is not there from the answer about a path that is not served."""
    return body.startswith(b"{") and "name" in json.loads(body).get("details", {})


def _message(body: bytes) -> str:
    """Return the message of a Status, which kubectl prints, or all of another answer."""
    try:
        return str(json.loads(body)["message"])
    except (ValueError, LookupError, TypeError):
        return body.decode(errors="replace")


def _without_managers(found: Json) -> Json:
    """Return an object as kubectl prints it."""
    found.get("metadata", {}).pop("managedFields", None)
    return found
