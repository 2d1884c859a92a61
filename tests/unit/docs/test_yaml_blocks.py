"""YAML in the documents for users: configurations are good, caches have valid fields, volumes valid attributes."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import links
import msgspec
import pytest
import yaml
from gkm.api import config
from gkm.api.caches import ClusterGKMCache, GKMCache
from gkm.api.config import Config
from gkm_csi.volumes import request

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^( *)```yaml\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
FIELDS = {field.encode_name for field in msgspec.structs.fields(Config)}


def documents() -> Iterator[tuple[str, Any]]:
    """Yield (page, document) of README, the quickstart, how-tos and features; an ellipsis is the rest of a key."""
    folders = (ROOT / "docs" / "how-to", ROOT / "docs" / "features")
    pages = [page for folder in folders for page in links.pages(folder)]
    for page in [ROOT / "README.md", ROOT / "docs" / "quickstart.md", *pages]:
        for indent, block in BLOCK.findall(page.read_text(encoding="utf-8")):
            text = "\n".join(line.removeprefix(indent) for line in block.splitlines())
            for document in yaml.load_all(text, yaml.CSafeLoader):
                yield str(page.relative_to(ROOT)), document


def nodes(value: object) -> Iterator[dict[str, Any]]:
    """Yield every mapping inside a document."""
    if isinstance(value, dict):
        yield value
    for inside in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from nodes(inside)


ALL = list(documents())
CONFIGURATIONS = [(page, document["config"]) for page, document in ALL if "config" in document]
CONFIGURATIONS += [(page, document) for page, document in ALL if document.keys() <= FIELDS]
CACHES = [(page, document) for page, document in ALL if document.get("kind") in ("GKMCache", "ClusterGKMCache")]
VOLUMES = [(page, node) for page, document in ALL for node in nodes(document) if node.get("driver") == "csi.gkm.io"]


def test_the_documents_have_all_of_them() -> None:
    assert min(len(CONFIGURATIONS), len(CACHES), len(VOLUMES)) >= 3


@pytest.mark.parametrize(("page", "document"), CONFIGURATIONS)
def test_a_configuration_is_good(page: str, document: dict[str, Any]) -> None:
    assert config.parse(yaml.safe_dump(document)), page


@pytest.mark.parametrize(("page", "document"), CACHES)
def test_a_cache_is_valid(page: str, document: dict[str, Any]) -> None:
    found = msgspec.convert(document, GKMCache | ClusterGKMCache)
    assert document["spec"].keys() <= msgspec.to_builtins(found)["spec"].keys(), page


@pytest.mark.parametrize(("page", "volume"), VOLUMES)
def test_a_volume_has_valid_attributes(page: str, volume: dict[str, Any]) -> None:
    written = request.pod_attributes(volume["volumeAttributes"])
    assert request.cache_ref(written, "ml-apps"), page
    assert request.volume_options(written), page
    assert all(isinstance(value, str) for value in written.values()), "the API server takes strings only"
