"""docs/reference/topology-providers.md: the contract has these fields, its configurations are good, its test runs."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gkm.topology.hypernodes
import gkm.topology.providers
import gkm.topology.quarantine
import pytest
import yaml
from gkm.api import config

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "topology-providers.md"
TEXT = PAGE.read_text(encoding="utf-8")
TYPE = re.compile(r"^\| `(\w+)` \| `(gkm\.topology\.\w+)` \| (.*) \|$", re.MULTILINE)
STRUCTS = ("Event", "HyperNode", "Member", "Quarantined", "Reply", "ClusterNode")
DOCUMENTS = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)]
VALUES = [document for document in DOCUMENTS if "config" in document]


def fields(name: str) -> list[str]:
    """Return what the page says: the code at the start of each part of the cell."""
    (cell,) = (cell for found, _, cell in TYPE.findall(TEXT) if found == name)
    return [found[1] for part in re.split(r"; |\. ", cell) if (found := re.match(r"`(\w+)`", part))]


def in_code(name: str) -> Any:  # noqa: ANN401 -- a class of the contract
    (module,) = (module for found, module, _ in TYPE.findall(TEXT) if found == name)
    return getattr(sys.modules[module], name)


@pytest.mark.parametrize("name", STRUCTS)
def test_a_type_has_the_fields_of_the_page_in_their_order(name: str) -> None:
    found = in_code(name)
    assert fields(name) == list(getattr(found, "__struct_fields__", None) or found._fields)


def test_every_type_of_the_page_is_in_its_module() -> None:
    names = {name for name, _, _ in TYPE.findall(TEXT)}
    assert names == {*STRUCTS, "Action", "ProviderFailed"}
    assert all(isinstance(in_code(name), type) for name in names)
    told = next(cell for name, _, cell in TYPE.findall(TEXT) if name == "Action")
    assert set(re.findall(r"`([A-Z]+)`", told)) == {action.name for action in gkm.topology.providers.Action}


def test_the_levels_of_the_page_are_the_defaults() -> None:
    (told,) = re.findall(r"The levels are (.*?), unless", TEXT)
    assert re.findall(r"`(\w+)`", told) == [level.name for level in config.parse("{}").topology.levels]


def test_configurations_are_good_and_keep_the_labels() -> None:
    own = [values["config"] for values in VALUES] + [
        document for document in DOCUMENTS if any("config" in each for each in providers(document))
    ]
    assert len(own) == 3
    for document in own:
        parsed = config.parse(yaml.safe_dump(document)).topology
        assert "labels" in [provider.name for provider in parsed.providers]


def providers(document: Any) -> list[dict[str, Any]]:  # noqa: ANN401 -- YAML
    found: list[dict[str, Any]] = (
        document.get("topology", {}).get("providers", []) if isinstance(document, dict) else []
    )
    return found


def test_the_pod_of_a_provider_has_the_name_of_a_provider_in_the_configuration() -> None:
    (values,) = VALUES
    configured = {each["name"] for each in providers(values["config"])} - {"labels"}
    assert {each["name"] for each in providers(values)} == configured
    assert f"deployment/gkm-provider-{configured.pop()}" in TEXT


def test_the_test_of_a_provider_prints_its_first_event(tmp_path: Path) -> None:
    (snippet,) = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    example = PAGE.parent / "examples" / "inventory_provider.py"
    (tmp_path / example.name).write_bytes(example.read_bytes())
    (tmp_path / "groups.json").write_text('{"block-1": ["gpu-1", "gpu-2"]}')
    done = subprocess.run(
        [sys.executable, "-c", snippet], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "name='block-1', tier_name='block'" in done.stdout
