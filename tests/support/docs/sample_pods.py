"""The pods that people copy: those of deploy/samples and of README."""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
Json = dict[str, Any]


def pods() -> list[Json]:
    """Every pod with a volume of ours in the samples and in README."""
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "deploy" / "samples").glob("*.yaml"))]
    texts += re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    found = [document for text in texts for document in yaml.safe_load_all(text) if isinstance(document, dict)]
    return [document for document in found if document.get("kind") == "Pod" and mounts(document)]


def mounts(pod: Json) -> bool:
    return any(volume.get("csi", {}).get("driver") == "csi.gkm.io" for volume in pod["spec"].get("volumes", []))
