"""JSON merge patch, RFC 7386. Pure; a result never shares a list or an object with its inputs."""

from copy import deepcopy
from typing import Any


def merge_patch(target: Any, patch: Any) -> Any:  # noqa: ANN401 -- any JSON value
    """Return `target` after the merge patch `patch` (RFC 7386, section 2)."""
    if not isinstance(patch, dict):
        return deepcopy(patch)
    base = target if isinstance(target, dict) else {}
    merged = {key: value if key in patch else deepcopy(value) for key, value in base.items()}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(base.get(key), value)
    return merged
