"""The manifests of docs/features/placement.md."""

import re
from pathlib import Path

import yaml
from gkm.kube.resources import Json

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "features" / "placement.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)


def manifest(kind: str) -> Json:
    """Return the only whole object of a kind on the page.

    Raises:
        ValueError: the page has none, or several.
    """
    documents = [yaml.load(text, yaml.CSafeLoader) for text in _BLOCK.findall(PAGE)]
    (found,) = (document for document in documents if document.get("kind") == kind)
    return found  # type: ignore[no-any-return]
