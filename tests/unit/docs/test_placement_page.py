"""docs/features/placement.md: its Job is the workload of its Run, and its command switches gates on.

tests/partners/operator/test_pod_gates_by_scheduler.py starts both on a kube-scheduler.
"""

import re
from pathlib import Path

import msgspec
import yaml
from gkm.api import config
from gkm.api.runs import RUN_LABEL, Run
from support.docs.placement_page import PAGE, manifest

VALUES = Path(__file__).parents[3] / "deploy" / "chart" / "gkm" / "values.yaml"
RUN, JOB = manifest("Run"), manifest("Job")
REQUEST, JOB_SPEC = RUN["spec"], JOB["spec"]


def test_the_run_has_the_fields_of_the_kind() -> None:
    read = msgspec.to_builtins(msgspec.convert(RUN, Run))["spec"]
    assert {field: read.get(field) for field in REQUEST} == REQUEST


def test_the_job_has_the_pods_of_the_run() -> None:
    pods = REQUEST["gpus"] // REQUEST["gpusPerPod"]
    assert (JOB_SPEC["completionMode"], JOB_SPEC["completions"], JOB_SPEC["parallelism"]) == ("Indexed", pods, pods)
    assert JOB["metadata"]["namespace"] == RUN["metadata"]["namespace"]
    assert JOB_SPEC["template"]["metadata"]["labels"] == {RUN_LABEL: RUN["metadata"]["name"]}


def test_a_pod_requests_what_the_run_states() -> None:
    (container,) = JOB_SPEC["template"]["spec"]["containers"]
    limits = {"nvidia.com/gpu": REQUEST["gpusPerPod"]}
    assert container["resources"] == {"requests": REQUEST["requests"], "limits": limits}


def test_the_order_of_the_groups_is_told_for_the_groups_of_the_run() -> None:
    size = REQUEST["groupGPUs"] // REQUEST["gpusPerPod"]
    told = f"with {size} pods a group, numbers 0 to {size - 1} are group 0, {size} to {2 * size - 1} group 1"
    assert told in PAGE


def test_the_command_switches_on_the_feature_and_its_setting() -> None:
    (command,) = re.findall(r"^helm upgrade .*podGates.*$", PAGE, re.MULTILINE)
    switched = set(re.findall(r"--set ([\w.]+)=true", command))
    assert switched == {"features.podGates", "config.packing.podGates"}
    assert "podGates" in yaml.load(VALUES.read_text(encoding="utf-8"), yaml.CSafeLoader)["features"]
    assert config.parse("packing: {podGates: true}").packing.pod_gates
