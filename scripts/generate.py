"""Write the generated files: crds and rights from gkm.api, and the messages of CSI. `--check` only compares, for CI."""

import subprocess
import sys
import tempfile
from pathlib import Path

import yaml
from gkm.api import task_group_rights
from gkm.api.crds import definitions
from gkm.api.task_group_settings import TaskGroups

ROOT = Path(__file__).resolve().parent.parent
MESSAGES = "gkm_csi/proto"
HEADER = "# Generated from core/gkm/api by `make generate`; do not edit.\n"
RIGHTS_HEADER = HEADER + "# For another taskGroups.allowedKinds, `gkm template rights` prints what to apply instead.\n"


def generated() -> dict[Path, str]:
    """Return {path: text} of every generated file."""
    crds = {
        ROOT / "crds" / name: HEADER + yaml.safe_dump(value, sort_keys=False, width=120)
        for name, value in definitions().items()
    }
    return crds | {ROOT / "deploy" / "components" / "task-groups" / "kinds.yaml": _kinds()} | _messages()


def _kinds() -> str:
    """Return the rights of the controllers on the kinds that templates may create by default."""
    return RIGHTS_HEADER + yaml.safe_dump_all(task_group_rights.manifests(TaskGroups()), sort_keys=False, width=120)


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
