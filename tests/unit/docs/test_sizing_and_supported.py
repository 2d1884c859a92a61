"""The pages about sizes and supported systems state what the chart and the code have."""

import re
from pathlib import Path

import pytest
import yaml
from gkm_cli.inputs.gpu_names import MODELS
from support.docs.tables import rows

ROOT = Path(__file__).parents[3]
CHART = ROOT / "deploy" / "chart" / "gkm"
REFERENCE = ROOT / "docs" / "reference"
VALUES = yaml.load((CHART / "values.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
DEFAULTS = {
    "controllers": CHART / "templates" / "controllers.yaml",
    "admission": CHART / "templates" / "admission.yaml",
    "topology provider": CHART / "templates" / "topology" / "providers.yaml",
}
"""Where the value is empty, the template has the amounts."""
MEMORY = {row[0]: row for row in rows(REFERENCE / "sizing.md", "## Memory")}
GPUS = rows(REFERENCE / "supported.md", "## GPUs")


@pytest.mark.parametrize(("process", "key"), [("agent", "agent"), ("CSI driver", "csi")])
def test_the_memory_of_a_daemon_is_the_one_in_the_values(process: str, key: str) -> None:
    resources = VALUES[key]["resources"]
    assert MEMORY[process][2:4] == [resources["requests"]["memory"], resources["limits"]["memory"]]


@pytest.mark.parametrize("process", DEFAULTS)
def test_the_memory_of_another_process_is_the_one_in_its_template(process: str) -> None:
    text = DEFAULTS[process].read_text(encoding="utf-8")
    request, limit = MEMORY[process][2:4]
    (found,) = re.findall(r"requests:\n +cpu: \S+\n +memory: (\w+)\n", text)
    assert request == found
    limits = text.partition("requests:")[2].partition("limits:")[2].partition("securityContext:")[0]
    amounts = re.findall(r"memory: .*?([0-9]+Mi)", limits) + re.findall(r'"([0-9]+Mi)"', limits)
    assert set(amounts) == {limit, *re.findall(r"[0-9]+Mi", MEMORY[process][4])}


def test_each_model_of_a_gpu_is_in_the_table_with_its_architecture() -> None:
    listed = {
        model: (arch, backend, warp)
        for models, arch, backend, warp, _ in GPUS
        if arch.startswith(("sm_", "gfx"))
        for model in re.findall(r"`(\w+)`", models)
    }
    assert listed == {model: (each.arch_name, each.backend, str(each.warp_size)) for model, each in MODELS.items()}
