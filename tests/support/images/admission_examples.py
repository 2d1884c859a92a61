"""The policies of deploy/examples/admission, for other admission controllers than GKM's."""

from pathlib import Path
from typing import Any

import yaml

DIRECTORY = Path(__file__).parents[3] / "deploy" / "examples" / "admission"


def policies(controller: str) -> dict[str, dict[str, Any]]:
    """Return the policies for `kyverno` or `policy-controller` by their names."""
    found = yaml.load_all((DIRECTORY / f"{controller}.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
    return {document["metadata"]["name"]: document for document in found}
