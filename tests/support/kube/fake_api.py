"""A Kubernetes API in memory behind `gkm.kube.api.Api`; it passes tests/contract/test_kube_api_*.py."""

import itertools
import json
import marshal
from collections.abc import Callable, Iterator, Mapping
from threading import RLock
from typing import Any, TypeVar

from gkm.kube import decoding
from gkm.kube.api import EVERYTHING, PAGE_LIMIT, Api, Change, ListPage, ListSelector, Object, WatchEvent
from gkm.kube.errors import ApiError
from gkm.kube.resources import Resource
from support.kube.fake_discovery import documents
from support.kube.fake_watch import FakeWatch, is_selected, reduced

T = TypeVar("T")
J = TypeVar("J")
Json = dict[str, Any]
Key = tuple[str, str, str]
FOREGROUND = "foregroundDeletion"
"""The finalizer of the garbage collector: support.kube.garbage."""


class FakeApi(Api):
    """Objects by (plural, namespace, name), a history that watches replay, and faults on request."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, str]] = []
        self.fault: Callable[[str, str], ApiError | None] = lambda _verb, _plural: None
        self.served: set[tuple[str, str]] | None = None
        """The served kinds as (apiVersion, plural); None for every kind."""
        self.kinds: list[Resource[Any]] = []
        """The kinds that discovery shows, if they are served."""
        self.field_managers: set[str] = set()
        self.logs: dict[tuple[str, str, str], bytes] = {}
        """Logs by namespace, pod and container."""
        self._objects: dict[Key, Json] = {}
        self._applied: dict[tuple[Key, str, str], Json] = {}
        self._history: list[tuple[int, str, Change, Json]] = []
        self._forgotten = 0
        self._version = 0
        self._uids = itertools.count(1)
        self._watches: list[FakeWatch[Any]] = []
        self._lock = RLock()

    # what the Protocol says

    def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        with self._lock:
            self._called("get", resource, name)
            return _typed(resource, self._found(resource, namespace, name))

    def list_pages(
        self, resource: Resource[T], selector: ListSelector = EVERYTHING, limit: int = PAGE_LIMIT
    ) -> Iterator[ListPage[T]]:
        with self._lock:
            self._called("list", resource, "")
            found = [
                value for key, value in sorted(self._objects.items()) if is_selected(resource, selector, key, value)
            ]
            listed = _copied(found)
            version = self._version
            metadata = {"resourceVersion": str(version)}
        for start in range(0, max(len(listed), 1), limit):
            if start:
                with self._lock:
                    self._called("list", resource, "continue")
                    self._remembered(version, "The provided continue parameter is too old")
            # As the real API: an object that cannot be decoded as the requested type is reported as unreadable.
            items = [reduced(resource, value) for value in listed[start : start + limit]]
            part = {"metadata": metadata, "items": items}
            yield decoding.page(resource, json.dumps(part).encode())[0]

    def watch(
        self, resource: Resource[T], resource_version: str, selector: ListSelector = EVERYTHING
    ) -> "FakeWatch[T]":
        with self._lock:
            self._called("watch", resource, resource_version)
            started: FakeWatch[T] = FakeWatch(resource, selector)
            try:
                self._remembered(int(resource_version), f"too old resource version: {resource_version}")
            except ApiError as error:
                started.fail(error)  # as the real one, in the midst of a watch that began well
            for version, plural, change, value in self._history:
                if version > int(resource_version) and plural == resource.plural:
                    started.offer(change, value)
            self._watches.append(started)
            return started

    def apply(self, resource: Resource[T], value: Object, *, field_manager: str, subresource: str = "") -> T:
        with self._lock:
            plain: Json = json.loads(json.dumps(decoding.plain(value)))
            meta = plain["metadata"]
            self._called("apply", resource, meta["name"])
            key = (resource.plural, meta.get("namespace", "") if resource.namespaced else "", meta["name"])
            old = self._objects.get(key)
            if old is None and subresource:
                raise _not_found(resource, meta["name"])
            _precondition(meta.pop("resourceVersion", None), old)
            wanted = {part: plain[part] for part in plain if (part == "status") == (subresource == "status")}
            wanted.pop("apiVersion", None)
            wanted.pop("kind", None)
            mine = (key, field_manager, subresource)
            new = _copied(old) if old else {"apiVersion": resource.api_version, "kind": resource.kind}
            _take_back(new, self._applied.get(mine, {}), wanted)
            _merge(new, wanted)
            self._applied[mine] = wanted
            return _typed(resource, self._store(resource, key, old, new))

    def merge(
        self, resource: Resource[T], name: str, patch: Object, namespace: str | None = None, *, subresource: str = ""
    ) -> T:
        with self._lock:
            self._called("merge", resource, name)
            old = self._found(resource, namespace, name)
            plain: Json = json.loads(json.dumps(decoding.plain(patch)))
            _precondition(plain.get("metadata", {}).pop("resourceVersion", None), old)
            new = _copied(old)
            uid = old["metadata"]["uid"]
            if plain.get("metadata", {}).get("uid", uid) != uid:
                raise ApiError(422, "Invalid", "metadata.uid: field is immutable")
            part = {p: plain[p] for p in plain if (p == "status") == (subresource == "status")}
            return _typed(resource, self._store(resource, _key(resource, namespace, name), old, _merge(new, part)))

    def create(self, resource: Resource[T], value: Object, *, field_manager: str = "") -> T:
        with self._lock:
            new: Json = json.loads(json.dumps(decoding.plain(value)))
            name = new["metadata"]["name"]
            self._called("create", resource, name)
            self.field_managers.add(field_manager)
            key = _key(resource, new["metadata"].get("namespace"), name)
            if key in self._objects:
                raise ApiError(409, "AlreadyExists", f"{resource.plural} {name!r} already exists")
            new.pop("status", None)
            new["metadata"].pop("deletionTimestamp", None)
            return _typed(resource, self._store(resource, key, None, new))

    def delete(
        self,
        resource: Resource[Any],
        name: str,
        namespace: str | None = None,
        *,
        uid: str = "",
        resource_version: str = "",
        foreground: bool = False,
    ) -> None:
        with self._lock:
            self._called("delete", resource, name)
            old = self._found(resource, namespace, name)
            if uid and uid != old["metadata"]["uid"]:
                raise ApiError(409, "Conflict", f"the UID in the precondition ({uid}) is not that of the object")
            _precondition(resource_version, old)
            self._delete(resource, _key(resource, namespace, name), [FOREGROUND] if foreground else [])

    def discover(self, path: str, document: type[T]) -> T:
        with self._lock:
            self.calls.append(("discover", path, ""))
            if error := self.fault("discover", path):
                raise error
            return decoding.document(path, json.dumps(documents(self.kinds, self.served)(path)).encode(), document)

    def log(self, pod: str, container: str, namespace: str, lines: int, most: int, *, previous: bool = False) -> bytes:
        with self._lock:
            self.calls.append(("log", "pods/log", f"{pod}/{container}"))
            if error := self.fault("log", "pods/log"):
                raise error
            self._found(Resource("v1", "Pod", "pods", namespaced=True, type=dict), namespace, pod)
            text = self.logs.get((namespace, pod, f"{container}-previous" if previous else container), b"")
            return b"".join(text.splitlines(keepends=True)[-lines:])[:most]

    # what tests do to it

    def cut(self, error: ApiError | None = None) -> None:
        """End every watch that runs: cleanly, or as a broken connection."""
        with self._lock:
            watches, self._watches = self._watches, []
        for running in watches:
            if error:
                running.fail(error)
            running.close()

    def forget_history(self) -> None:
        """Compact: a watch from before now is answered 410."""
        with self._lock:
            self._version += 1
            self._forgotten = self._version
            self._history.clear()

    def put(self, resource: Resource[Any], value: Json) -> None:
        """Create an object, or replace it with its status, as a restore from a backup does."""
        with self._lock:
            key = _key(resource, value["metadata"].get("namespace"), value["metadata"]["name"])
            self._store(resource, key, self._objects.get(key), value)

    def stored(self, plural: str) -> list[Json]:
        """Return the objects of a kind by namespace and name, also if it is not served."""
        with self._lock:
            return [value for key, value in sorted(self._objects.items()) if key[0] == plural]

    def bookmark(self) -> None:
        """Send a bookmark to every watch."""
        with self._lock:
            self._version += 1
            for running in self._watches:
                running.put(WatchEvent(Change.BOOKMARK, str(self._version)))

    # what the garbage collector does: no request, which could fail, and it needs no kind to be served

    def collect(self, resource: Resource[Any], key: Key) -> None:
        """Delete an object; its finalizers hold it."""
        with self._lock:
            self._delete(resource, key, [])

    def end_foreground(self, resource: Resource[Any], key: Key) -> None:
        """Remove the finalizer of a deletion in the foreground; an object without another one goes."""
        with self._lock:
            old = self._objects[key]
            new = _copied(old)
            new["metadata"]["finalizers"].remove(FOREGROUND)
            self._store(resource, key, old, new)

    def _called(self, verb: str, resource: Resource[Any], detail: str) -> None:
        self.calls.append((verb, resource.plural, detail))
        if error := self.fault(verb, resource.plural):
            raise error
        if self.served is not None and (resource.api_version, resource.plural) not in self.served:
            # As the real API, which has no metav1.Status for a path that it does not serve.
            raise ApiError(404, "", "404 page not found")

    def _remembered(self, version: int, otherwise: str) -> None:
        if version < self._forgotten:
            raise ApiError(410, "Expired", otherwise)

    def _found(self, resource: Resource[Any], namespace: str | None, name: str) -> Json:
        try:
            return self._objects[_key(resource, namespace, name)]
        except KeyError:
            raise _not_found(resource, name) from None

    def _store(self, resource: Resource[Any], key: Key, old: Json | None, new: Json) -> Json:
        meta = new["metadata"]
        if old is not None and _without_version(old) == _without_version(new):
            return old
        meta.setdefault("uid", f"uid-{next(self._uids)}")
        if old is None:
            meta["generation"] = 1
        elif old.get("spec") != new.get("spec"):
            meta["generation"] = old["metadata"]["generation"] + 1
        if "deletionTimestamp" in meta and old is not None and not meta.get("finalizers"):
            self._remove(resource, key, new)
            return new
        self._objects[key] = new
        self._record(resource, Change.MODIFIED if old else Change.ADDED, new)
        return new

    def _delete(self, resource: Resource[Any], key: Key, more_finalizers: list[str]) -> None:
        old = self._objects[key]
        finalizers = old["metadata"].get("finalizers", []) + more_finalizers
        if not finalizers:
            self._remove(resource, key, old)
        elif "deletionTimestamp" not in old["metadata"]:
            new = _copied(old)
            new["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers}
            self._store(resource, key, old, new)

    def _remove(self, resource: Resource[Any], key: Key, value: Json) -> None:
        del self._objects[key]
        for mine in [mine for mine in self._applied if mine[0] == key]:
            del self._applied[mine]
        self._record(resource, Change.DELETED, value)

    def _record(self, resource: Resource[Any], change: Change, value: Json) -> None:
        self._version += 1
        value = _copied(value) if change is Change.DELETED else value
        value["metadata"]["resourceVersion"] = str(self._version)
        kept = _copied(value)
        self._history.append((self._version, resource.plural, change, kept))
        for running in self._watches:
            if running.resource.plural == resource.plural:
                running.offer(change, kept)


def _copied(value: J) -> J:
    """Return a copy of JSON, in a seventh of the time of copy.deepcopy."""
    made: J = marshal.loads(marshal.dumps(value))  # type: ignore[arg-type] # noqa: S302 -- from the same line
    return made


def _typed(resource: Resource[T], value: Json) -> T:
    return decoding.single_object(resource, json.dumps(reduced(resource, value)).encode())


def _key(resource: Resource[Any], namespace: str | None, name: str) -> Key:
    return resource.plural, (namespace or "") if resource.namespaced else "", name


def _not_found(resource: Resource[Any], name: str) -> ApiError:
    return ApiError(404, "NotFound", f"{resource.plural} {name!r} not found")


def _precondition(version: str | None, old: Json | None) -> None:
    """Refuse what was made of an older object than the one that is there."""
    if version and old is not None and version != old["metadata"]["resourceVersion"]:
        raise ApiError(409, "Conflict", "the object has been modified")


def _merge(target: Json, patch: Mapping[str, Any]) -> Json:
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        elif isinstance(value, dict):
            inner = target.get(name)
            target[name] = _merge(inner if isinstance(inner, dict) else {}, value)
        else:
            target[name] = value
    return target


def _take_back(target: Json, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for name, value in before.items():
        if isinstance(value, dict) and isinstance(target.get(name), dict):
            inner = now.get(name)
            _take_back(target[name], value, inner if isinstance(inner, dict) else {})
            if name not in now and not target[name]:
                del target[name]
        elif name not in now:
            target.pop(name, None)


def _without_version(value: Json) -> Json:
    meta = {name: item for name, item in value["metadata"].items() if name != "resourceVersion"}
    return value | {"metadata": meta}
