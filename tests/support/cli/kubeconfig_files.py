"""Kubeconfigs with several contexts, as a person has them."""

import json
from pathlib import Path
from typing import Any


def config(path: Path, contexts: dict[str, str | None], current: str | None = None) -> str:
    """Write a kubeconfig: its contexts by name with their namespaces."""
    content: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": path.name, "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": path.name, "user": {}}],
        "contexts": [
            {
                "name": name,
                "context": {"cluster": path.name, "user": path.name, **({"namespace": space} if space else {})},
            }
            for name, space in contexts.items()
        ],
        **({"current-context": current} if current else {}),
    }
    path.write_text(json.dumps(content))
    return str(path)
