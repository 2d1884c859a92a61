"""The rendered manifests agree with the code: configuration, rights, names, limits and the policy about labels."""

import copy
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from gkm.api import config, crds
from gkm.api.cliques import NO_CLIQUE, PLACEHOLDERS
from gkm.api.definition_origin import compare
from gkm.api.features import Feature
from gkm.api.task_group_rights import manifests
from gkm.api.task_group_settings import AllowedKind, TaskGroups
from gkm.api.topology_settings import TopologyLabels
from support.chart.deploy_files import ROOT, rendered
from support.chart.helm import CHART, helm, render
from support.operator.command_line import called
from support.operator.deployment import manifests as base
from support.operator.upstream import upstream
from support.peers import require

COMMANDS = ("admission", "controllers")
"""The containers whose commands check a configuration."""


@pytest.fixture(scope="module", autouse=True)
def _helm() -> None:
    require.peer("helm")


def documents(path: str) -> list[dict[str, Any]]:
    return list(yaml.load_all((rendered() / path).read_text(encoding="utf-8"), yaml.CSafeLoader))


def test_the_configmap_that_ships_is_read_as_it_is() -> None:
    code, said = called("--check-config", f"--config={rendered() / 'base' / 'config.yaml'}")
    assert (code, said.strip()) == (0, "gkm-operator: the configuration is good")


def test_the_shipped_configuration_enforces_signatures() -> None:
    (shipped,) = documents("base/config.yaml")
    assert config.parse(shipped["data"]["config.yaml"].encode()).verification.mode == "enforce"


def pods() -> Iterator[dict[str, Any]]:
    """Yield the pods that the base installs."""
    for manifest in base():
        if manifest["kind"] in {"DaemonSet", "Deployment"}:
            yield manifest["spec"]["template"]["spec"]


def test_the_arguments_that_ship_are_understood() -> None:
    found = [container for pod in pods() for container in pod["containers"] if container["name"] in COMMANDS]
    assert len(found) == len(COMMANDS)
    for container in found:
        arguments = [word for word in container["args"] if not word.startswith("--config=")]
        assert called(*arguments, "--check-config") == (0, "gkm-operator: the configuration is good\n")


def test_only_the_csi_container_is_privileged() -> None:
    for pod in pods():
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"], container["name"]
            if container["name"] == "csi":
                assert security["privileged"]
                assert not pod["automountServiceAccountToken"]
                continue
            assert "privileged" not in security
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert security["seccompProfile"] == {"type": "RuntimeDefault"}
            assert not security["allowPrivilegeEscalation"]


def test_images_of_the_pods_are_those_of_the_dockerfiles() -> None:
    images = {container["image"].partition(":")[0] for pod in pods() for container in pod["containers"]}
    assert images == {f"gkm-{path.suffix.removeprefix('.')}" for path in ROOT.glob("Dockerfile.*")}


def test_install_yaml_is_the_kinds_and_then_the_base() -> None:
    kinds = sorted((ROOT / "crds").glob("*.yaml"))
    wanted = [*(yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader) for path in kinds), *base()]
    assert documents("install.yaml") == wanted
    assert wanted[len(kinds)]["kind"] == "Namespace"


@pytest.mark.parametrize("feature", Feature)
def test_a_feature_has_the_directory_that_messages_name(feature: Feature) -> None:
    assert (rendered() / feature.component / "kustomization.yaml").is_file()


@pytest.mark.parametrize("feature", sorted(set(Feature) - {Feature.TOPOLOGY_HYGIENE}))
def test_a_feature_has_a_binding_of_its_name(feature: Feature) -> None:
    texts = [path.read_text(encoding="utf-8") for path in (rendered() / feature.component).glob("*.yaml")]
    found = [one for text in texts for one in yaml.load_all(text, yaml.CSafeLoader) if one]
    assert ("ClusterRoleBinding", feature.binding) in {
        (one["kind"], one["metadata"]["name"]) for one in found if "metadata" in one
    }


def test_the_component_ships_the_rights_of_the_default_list() -> None:
    shipped = documents("components/task-groups/kinds.yaml")
    assert shipped == manifests(TaskGroups())
    roles, bindings = shipped[::2], shipped[1::2]
    assert [each["roleRef"]["name"] for each in bindings] == [each["metadata"]["name"] for each in roles]
    assert [each["subjects"] for each in bindings] == [
        [{"kind": "ServiceAccount", "name": name, "namespace": "gkm-system"}]
        for name in ("gkm-controllers", "gkm-admission")
    ]


KINDS: dict[str, list[dict[str, str]]] = {
    "plurals": [
        {"kind": "NetworkPolicy", "group": "networking.k8s.io"},
        {"kind": "Ingress", "group": "networking.k8s.io"},
        {"kind": "Secret"},
        {"kind": "ConfigMap"},
        {"kind": "Secret"},
        {"kind": "Thing", "group": "a.test", "resource": "thingies"},
    ],
    "none": [],
}


@pytest.mark.parametrize("name", KINDS)
def test_the_chart_grants_the_rights_of_the_list_in_its_values(name: str) -> None:
    values = {"features": {"taskGroups": True}, "config": {"taskGroups": {"allowedKinds": KINDS[name]}}}
    found = [each.value for each in render(values) if each.source == "task-groups/kinds.yaml"]
    assert found == manifests(TaskGroups(allowed_kinds=[AllowedKind(**kind) for kind in KINDS[name]]))


def older(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Return our GKMCache with a changed schema of its status."""
    found = copy.deepcopy(crds.definitions()["gkm.io_gkmcaches.yaml"])
    change(found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"])
    return found


OLDER = {
    "same": older(lambda _status: None),
    "no field": older(lambda status: status.pop("ready")),
    "no inner field": older(lambda status: status["conditions"]["items"]["properties"].pop("reason")),
    "no items": older(lambda status: status["conditions"].pop("items")),
    "another type": older(lambda status: status["conditions"].update(type="object")),
    "no value": older(lambda status: status["conditions"]["items"]["properties"]["status"].update(enum=["True"])),
    "required": older(lambda status: status["conditions"]["items"]["required"].append("observedGeneration")),
    "anything": older(lambda status: status["conditions"].update({"x-kubernetes-preserve-unknown-fields": True})),
    "any map": older(lambda status: status["failedNodeConditions"].update(additionalProperties=True)),
    "upstream": upstream(),
}


@pytest.mark.parametrize("name", OLDER)
def test_helm_finds_what_a_kind_lacks_as_the_controllers_do(tmp_path: Path, name: str) -> None:
    ours, theirs = crds.definitions()["gkm.io_gkmcaches.yaml"], OLDER[name]
    schemas = [each["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for each in (ours, theirs)]
    (tmp_path / "templates").mkdir()
    shutil.copy(CHART / "templates" / "_helpers.tpl", tmp_path / "templates")
    (tmp_path / "Chart.yaml").write_text("{apiVersion: v2, name: x, version: 0.0.0}")
    (tmp_path / "templates" / "lacking.yaml").write_text(
        'lacking: {{ include "gkm.lacking" (list .Values.ours .Values.theirs "") | quote }}'
    )
    printed = helm("template", "x", tmp_path, values=dict(zip(("ours", "theirs"), schemas, strict=True)))
    lacking = yaml.load(printed, yaml.CSafeLoader)["lacking"].split("\n")
    assert sorted(filter(None, lacking)) == sorted(compare(ours, theirs).lacking)


def test_the_admission_policy_has_the_same_placeholders_and_keys() -> None:
    policy = documents("components/topology-hygiene/policy.yaml")[0]
    variables = {each["name"]: each["expression"] for each in policy["spec"]["variables"]}
    assert yaml.load(variables["placeholders"], yaml.CSafeLoader) == list(PLACEHOLDERS)
    defaults = TopologyLabels()
    places = [*defaults.region, *defaults.cluster, *defaults.domain, *defaults.block, *defaults.rack]
    assert yaml.load(variables["places"], yaml.CSafeLoader) == places
    assert yaml.load(variables["flavors"], yaml.CSafeLoader) == defaults.flavor
    assert yaml.load(variables["cliques"], yaml.CSafeLoader) == defaults.domain
    assert yaml.load(variables["noClique"], yaml.CSafeLoader) == NO_CLIQUE
