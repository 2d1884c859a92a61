"""Whoever creates an object of a feature that is not installed gets a warning from a real API server.

The policies of deploy/base warn; the component of a feature switches its policy off.
"""

from pathlib import Path
from typing import Any

import pytest
from support.chart.kustomized import COMMANDS, build, overlay
from support.cluster.cluster import Cluster
from support.cluster.warnings import warned
from support.operator.group_templates import group, pool, template

Json = dict[str, Any]
FEATURES = {"task-groups": "group templates", "pod-caches": "caches by label", "domains": "ComputeDomains"}


def labeled(kind: str, **labels: str) -> Json:
    made = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "labeled", "labels": labels}}
    return made | {"spec": {"containers": [{"name": "main", "image": "i"}]}} if kind == "Pod" else made


@pytest.fixture(scope="module")
def place(gkm_cluster: Cluster) -> Cluster:
    """Return the shared cluster, which has the policies of deploy/base."""
    gkm_cluster.until(lambda: gkm_cluster.exists("serviceaccount", "default", "default"), "the account of pods")
    gkm_cluster.until(lambda: "are off" in warned(gkm_cluster, pool()), "the policies to be in force")
    return gkm_cluster


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (pool(), "GKM stores this Pool and ignores it, because group templates are off"),
        (template("t"), "GKM stores this GroupTemplate and ignores it"),
        (group("g"), "GKM stores this TaskGroup and ignores it"),
        (labeled("Pod", **{"gkm.io/cache": "llama"}), "GKM does not read gkm.io/cache of this Pod"),
        (labeled("Pod", **{"gkm.io/cluster-cache": "llama"}), "because caches by label are off"),
        (labeled("Namespace", **{"gkm.io/default-cache": "llama"}), "gkm.io/default-cache of this Namespace"),
        (labeled("Pod", **{"gkm.io/compute-domain": "nccl"}), "because ComputeDomains are off"),
    ],
)
def test_an_object_of_an_absent_feature_causes_a_warning_and_no_refusal(place: Cluster, made: Json, words: str) -> None:
    said = warned(place, made)
    assert words in said
    assert "in the Helm chart" in said


@pytest.mark.parametrize(
    "made",
    [
        labeled("Pod"),
        labeled("Pod", app="x"),
        labeled("Pod", **{"gkm.io/cache": ""}),
        labeled("Namespace", **{"gkm.io/cache": "llama"}),
    ],
)
def test_other_objects_cause_none(place: Cluster, made: Json) -> None:
    assert warned(place, made) == ""


@pytest.mark.parametrize("feature", FEATURES)
def test_the_component_of_a_feature_switches_its_warning_off(tmp_path: Path, feature: str) -> None:
    built = build(overlay(tmp_path, [feature]), COMMANDS[0])
    switches = {
        name: built["ValidatingAdmissionPolicy", "", f"gkm-inactive-{name}"]["spec"]["matchConditions"][0]["expression"]
        for name in FEATURES
    }
    assert switches == {name: "false" if name == feature else "true" for name in FEATURES}
