"""The patches of kustomize that turn one object into another, so that patches of several components compose. Pure.

Two forms are needed. A strategic merge patch adds to lists whose elements have names (containers, env, volumes), also
where the list does not exist yet. Of all other lists, a JSON patch appends elements or replaces the list. None deletes
an object: kustomize of kubectl 1.32 panics at two `$patch: delete` in a file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MERGE_KEYS: Mapping[str, str] = {
    "containers": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""Lists that a strategic merge patch merges, and by what (patchMergeKey of the Kubernetes API)."""
Json = Mapping[str, Any]


@dataclass
class Patch:
    """A strategic merge patch, without what identifies the object, and the operations of a JSON patch (RFC 6902)."""

    merge: dict[str, Any] = field(default_factory=dict)
    operations: list[dict[str, Any]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.merge or self.operations)


def patch_between(old: Json, new: Json) -> Patch:
    """Return what turns `old` into `new`."""
    operations: list[dict[str, Any]] = []
    return Patch(_merge(old, new, "", operations), operations)


def _merge(old: Json, new: Json, pointer: str, operations: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the part of the merge patch for two mappings; what it cannot express is added to the operations."""
    found: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before, where = old.get(key), f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}"
        if before == value:
            continue
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            part: Any = _merge(before, value, where, operations)
        elif isinstance(before, list) and isinstance(value, list):
            part = _lists(key, before, value, where, operations)
        else:
            found[key] = value
            continue
        if part:
            found[key] = part
    return found


def _lists(
    key: str, old: Sequence[Any], new: Sequence[Any], pointer: str, operations: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    by = MERGE_KEYS.get(key)
    if by is not None and {each[by] for each in old} <= {each[by] for each in new}:
        places = {each[by]: index for index, each in enumerate(old)}
        found = []
        for each in new:
            index = places.get(each[by])
            changed = dict(each) if index is None else _merge(old[index], each, f"{pointer}/{index}", operations)
            if changed:
                found.append({by: each[by]} | changed)
        return found
    if list(new[: len(old)]) == list(old):
        operations += [{"op": "add", "path": f"{pointer}/-", "value": each} for each in new[len(old) :]]
    else:
        operations.append({"op": "replace", "path": pointer, "value": list(new)})
    return []
