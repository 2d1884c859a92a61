"""The garbage collector of a FakeApi."""

from collections.abc import Iterator
from typing import Any

from gkm.kube.resources import Resource
from support.kube.fake_api import FOREGROUND, FakeApi, Key

Json = dict[str, Any]


def collect_garbage(api: FakeApi, *, orphans: bool = True) -> None:
    """Delete what only objects own that are gone, and what is deleted in the foreground, until there is none.

    The collector sends no requests: faults, counts and unserved kinds of a test do not concern it, and any thread may
    call it. Finalizers of others are respected. Without `orphans`, it is late with what only gone objects own.
    """
    with api._lock:
        while doomed := [entry for entry in api._objects.items() if orphans and _is_garbage(api, entry[1])]:
            for key, value in doomed:
                api.collect(_resource(key, value), key)
        while finished := list(_finished(api)):
            for key, value in finished:
                api.end_foreground(_resource(key, value), key)


def _is_garbage(api: FakeApi, value: Json) -> bool:
    metadata = value["metadata"]
    owners = {owner["uid"] for owner in metadata.get("ownerReferences", [])}
    uids = {one["metadata"]["uid"] for one in api._objects.values() if FOREGROUND not in _finalizers(one)}
    return bool(owners) and owners.isdisjoint(uids) and "deletionTimestamp" not in metadata


def _finished(api: FakeApi) -> Iterator[tuple[Key, Json]]:
    """Yield the objects that are deleted in the foreground and have no dependents any more."""
    owners = {owner["uid"] for value in api._objects.values() for owner in value["metadata"].get("ownerReferences", [])}
    for key, value in api._objects.items():
        if FOREGROUND in _finalizers(value) and value["metadata"]["uid"] not in owners:
            yield key, value


def _finalizers(value: Json) -> list[str]:
    return value["metadata"].get("finalizers") or []


def _resource(key: Key, value: Json) -> Resource[Json]:
    return Resource(value["apiVersion"], value["kind"], key[0], namespaced=bool(key[1]), type=dict)
