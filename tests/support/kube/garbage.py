"""The garbage collector of a FakeApi."""

from typing import Any

from gkm.kube.resources import Resource
from support.kube.fake_api import FakeApi

Json = dict[str, Any]


def collect_garbage(api: FakeApi) -> None:
    """Delete what only objects own that are gone, until there is none; finalizers are respected."""
    with api._lock:
        while doomed := [entry for entry in api._objects.items() if _is_garbage(api, entry[1])]:
            for (plural, namespace, name), value in doomed:
                version, kind = value["apiVersion"], value["kind"]
                resource = Resource(version, kind, plural, namespaced=bool(namespace), type=dict)
                api.delete(resource, name, namespace)


def _is_garbage(api: FakeApi, value: Json) -> bool:
    metadata = value["metadata"]
    owners = {owner["uid"] for owner in metadata.get("ownerReferences", [])}
    uids = {one["metadata"]["uid"] for one in api._objects.values()}
    return bool(owners) and owners.isdisjoint(uids) and "deletionTimestamp" not in metadata
