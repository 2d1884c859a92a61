"""Kubeconfigs of API servers that tests make up."""

import json
from collections.abc import Mapping
from pathlib import Path


def write(path: Path, server: str, user: Mapping[str, object] | None = None) -> Path:
    """Write a kubeconfig with one context, the current one; `user` is the `user:` mapping. Return its path."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": dict(user or {})}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    path.write_text(json.dumps(content), encoding="utf-8")
    return path
