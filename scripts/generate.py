"""Write what is generated, except from the chart (scripts/manifests.py); `--check` only compares, for CI.

From gkm.api: crds, rights, the schema of the chart's values, the page of the API. From the commands: man pages, a page.
From gkm.runtimes and from the pins of partners: a page each. From pyproject.toml: every other place that says the
version. Besides, the dashboard and the messages of CSI.
"""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import api_reference
import command_reference
import dashboard
import man_pages
import msgspec
import partners_reference
import runtime_reference
import yaml
from gkm.api.config import Config
from gkm.api.crds import definitions
from gkm.api.task_group_settings import TaskGroups

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy" / "chart" / "gkm"
VALUES = Path(__file__).with_name("values.schema.yaml")
MESSAGES = "gkm_csi/proto"
HEADER = "# Generated from core/gkm/api by `make generate`; do not edit.\n"
VERSION_MODULE = '''"""Generated from pyproject.toml by `make generate`: importlib.metadata would cost 2 MiB."""

VERSION = "{}"
'''


def generated() -> dict[Path, str]:
    """Return {path: text} of every generated file."""
    crds = {
        ROOT / "crds" / name: HEADER + yaml.safe_dump(value, sort_keys=False, width=120)
        for name, value in definitions().items()
    }
    chart = {CHART / "files" / "task-group-kinds.yaml": _kinds(), CHART / "values.schema.json": _values_schema()}
    chart[CHART / "files" / "dashboard.json"] = dashboard.dashboard()
    manual = {ROOT / "docs" / "man" / name: text for name, text in man_pages.pages().items()}
    reference = ROOT / "docs" / "reference"
    pages = {reference / "api.md": api_reference.page(), reference / "commands.md": command_reference.page()}
    pages |= {reference / "runtimes.md": runtime_reference.page(), reference / "partners.md": partners_reference.page()}
    return crds | chart | manual | pages | _versions() | _messages()


def _versions() -> dict[Path, str]:
    """Return what repeats the version for programs that cannot read pyproject.toml."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    chart, driver = CHART / "Chart.yaml", ROOT / "csi" / "gkm_csi" / "server" / "version.py"
    text = re.sub(r"(?m)^(version|appVersion): .*$", rf"\1: {version}", chart.read_text(encoding="utf-8"))
    return {chart: text, driver: VERSION_MODULE.format(version)}


def _kinds() -> str:
    """Return the kinds that templates may create by default."""
    return HEADER + yaml.safe_dump(msgspec.to_builtins(TaskGroups().allowed_kinds), sort_keys=False, width=120)


def _values_schema() -> str:
    """Return the schema of the chart's values: Helm refuses a configuration that no process would accept."""
    schema = yaml.load(VALUES.read_text(encoding="utf-8"), yaml.CSafeLoader)
    _require(schema, yaml.load((CHART / "values.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader))
    (schema["properties"]["config"],), parts = msgspec.json.schema_components([Config])
    schema["$defs"] |= _shortened(parts)
    return json.dumps(schema, indent=1) + "\n"


def _require(schema: dict[str, Any], defaults: dict[str, Any]) -> None:
    """Require what templates read below a value, with the default of the chart: `agent: null` removes all of it.

    Lists and free objects may be null: templates treat them as empty.
    """
    known = {name: inner for name, inner in schema["properties"].items() if name in defaults}
    for name, inner in known.items():
        if "properties" in inner:
            _require(inner, defaults[name])
    scalars = {name for name in known if not isinstance(defaults[name], dict | list)}
    if required := sorted(scalars | {name for name, inner in known.items() if inner.get("required")}):
        schema["required"] = required


def _shortened(schema: Any) -> Any:  # noqa: ANN401 -- any JSON
    """Return a schema without what refuses nothing, and with the end of a pattern as Helm's expressions have it."""
    match schema:
        case {"type": "object", "properties": properties, **rest}:
            return _shortened(rest | {"type": "object"}) | {
                "properties": {k: _shortened(v) for k, v in properties.items()}
            }
        case dict():
            short = {key: _shortened(value) for key, value in schema.items() if key not in {"default", "description"}}
            return short | ({"pattern": schema["pattern"].replace("\\Z", "$")} if "pattern" in schema else {})
        case list():
            return [_shortened(each) for each in schema]
    return schema


def _messages() -> dict[Path, str]:
    """Return the modules of the .proto files: messages and types, without *_pb2_grpc, which the driver does not use."""
    sources = [f"{MESSAGES}/{path.name}" for path in sorted((ROOT / "csi" / MESSAGES).glob("*.proto"))]
    with tempfile.TemporaryDirectory() as directory:
        outputs = [f"--python_out={directory}", f"--pyi_out={directory}"]
        command = [sys.executable, "-m", "grpc_tools.protoc", "-I", "csi", *outputs, *sources]
        subprocess.run(command, check=True, cwd=ROOT)  # noqa: S603 -- our own words
        made = sorted(Path(directory).rglob("*.py*"))
        return {ROOT / "csi" / path.relative_to(directory): path.read_text(encoding="utf-8") for path in made}


def main() -> int:
    """Write or check; return the exit code."""
    wrong = [
        path for path, text in generated().items() if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if "--check" in sys.argv:
        for path in wrong:
            print(f"stale: {path.relative_to(ROOT)}; run 'make generate'")  # noqa: T201 -- a command line
        return 1 if wrong else 0
    for path in wrong:
        path.parent.mkdir(exist_ok=True)
        path.write_text(generated()[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
