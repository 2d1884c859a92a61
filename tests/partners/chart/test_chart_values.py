"""What values the chart accepts, and the configuration that it writes, by the real Helm."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from gkm.api import config
from kustomizations.directories import OVERLAYS
from support.chart.helm import CHART, HelmFailed, Values, helm, render
from support.chart.rendered import ALL, DEPLOYMENTS, pod
from support.peers import require


@pytest.fixture(scope="module", autouse=True)
def _helm() -> None:
    require.peer("helm")


@pytest.mark.parametrize("files", [(), *((each.values_file,) for each in OVERLAYS)])
def test_helm_finds_no_fault_in_the_chart(files: tuple[Path, ...]) -> None:
    words = [word for file in files for word in ("--values", file)]
    for values in ({}, ALL):
        assert "0 chart(s) failed" in helm("lint", "--strict", CHART, *words, values=values)


def test_the_chart_has_the_version_of_the_product() -> None:
    chart = yaml.load((CHART / "Chart.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
    project = tomllib.loads((CHART.parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (chart["version"], chart["appVersion"]) == (project["version"], project["version"])


def test_the_chart_ships_every_kind() -> None:
    shipped = yaml.load_all(helm("show", "crds", CHART), yaml.CSafeLoader)
    files = (CHART.parents[2] / "crds").glob("*.yaml")
    assert {each["metadata"]["name"] for each in shipped if each} == {
        yaml.load(file.read_text(encoding="utf-8"), yaml.CSafeLoader)["metadata"]["name"] for file in files
    }


@pytest.mark.parametrize(
    ("values", "where", "problem"),
    [
        ({"agnet": {}}, "''", "additional properties 'agnet' not allowed"),
        ({"agent": {"tolerations": []}}, "'/agent'", "additional properties 'tolerations' not allowed"),
        ({"config": {"verfication": {}}}, "'/config'", "additional properties 'verfication' not allowed"),
        (
            {"config": {"verification": {"mode": "on"}}},
            "'/config/verification/mode'",
            "must be one of 'enforce', 'off'",
        ),
        (
            {"config": {"verification": {"policies": [{"key": ""}]}}},
            "'/config/verification/policies/0'",
            "'key' not allowed",
        ),
        ({"config": {"store": {"maxBytes": "1Gi"}}}, "'/config/store/maxBytes'", "got string"),
        ({"configFiles": {"config.yaml": "{}"}}, "'/configFiles/config.yaml'", "false schema"),
        ({"configFiles": {"a/b": ""}}, "'/configFiles'", "additional properties 'a/b' not allowed"),
        ({"image": {"tag": 0.1}}, "'/image/tag'", "got number, want string"),
        ({"image": {"registry": "https://registry.test"}}, "'/image/registry'", "does not match pattern"),
        ({"image": {"digests": {"agent": "sha256:1"}}}, "'/image/digests/agent'", "does not match pattern"),
        ({"image": {"pullPolicy": "Sometimes"}}, "'/image/pullPolicy'", "must be one of"),
        ({"nodes": {"gpuVendor": "intel"}}, "'/nodes/gpuVendor'", "must be one of 'nvidia', 'amd'"),
        ({"hostPaths": {"kubelet": "var/lib/kubelet"}}, "'/hostPaths/kubelet'", "does not match pattern"),
        ({"hostPaths": {"state": "/var/lib/gkm/"}}, "'/hostPaths/state'", "does not match pattern"),
        ({"hostPaths": {"state": "/var/lib/gkm # caches"}}, "'/hostPaths/state'", "does not match pattern"),
        ({"hostPaths": {"run": "/run/gkm\n  x: y"}}, "'/hostPaths/run'", "does not match pattern"),
        ({"hostPaths": {"state": "/var/lib/../../etc"}}, "'/hostPaths/state'", "'not' failed"),
        ({"agent": {"driverRoot": "/run/nvidia/driver # here"}}, "'/agent/driverRoot'", "does not match pattern"),
        ({"agent": {"priorityClassName": "x\nhostNetwork: true"}}, "'/agent/priorityClassName'", "does not match"),
        ({"operator": {"priorityClassName": "High"}}, "'/operator/priorityClassName'", "does not match pattern"),
        ({"agent": {"seLinuxType": "spc_t: x"}}, "'/agent/seLinuxType'", "does not match pattern"),
        ({"image": {"pullSecrets": ["a: b"]}}, "'/image/pullSecrets/0'", "does not match pattern"),
        ({"configFiles": {"..": ""}}, "'/configFiles'", "additional properties '..' not allowed"),
        ({"agent": None}, "''", "missing property 'agent'"),
        ({"features": None}, "''", "missing property 'features'"),
        ({"image": {"digests": None}}, "'/image'", "missing property 'digests'"),
        ({"hostPaths": {"state": None}}, "'/hostPaths'", "missing property 'state'"),
        ({"controllers": {"replicas": 0}}, "'/controllers/replicas'", "got 0, want 1"),
        ({"admission": {"replicas": 9}}, "'/admission/replicas'", "got 9, want 8"),
        ({"admission": {"certificates": "vault"}}, "'/admission/certificates'", "must be one of 'own', 'cert-manager'"),
        ({"agent": {"resources": {"memory": "1Gi"}}}, "'/agent/resources'", "additional properties 'memory'"),
        ({"networkPolicies": {"enabled": True}}, "'/networkPolicies/apiServers'", "got 0, want 1"),
        ({"networkPolicies": {"apiServers": ["10.0.0.1"]}}, "'/networkPolicies/apiServers/0'", "does not match"),
    ],
)
def test_a_wrong_value_is_refused_by_its_path(values: Values, where: str, problem: str) -> None:
    with pytest.raises(HelmFailed) as refusal:
        render(values)
    lines = [line for line in str(refusal.value).splitlines() if line.lstrip().startswith("- at ")]
    assert all(f"at {where}: " in line for line in lines), lines
    assert any(problem in line for line in lines), lines


def test_names_that_yaml_takes_for_other_types_are_names() -> None:
    for name in ("123", "1e3", "true", "no", "0x10"):
        values = {
            "image": {"pullSecrets": [name]},
            "agent": {"priorityClassName": name, "runtimeClassName": name, "seLinuxType": name},
        }
        spec = pod("gkm-agent", values)["spec"]
        assert spec["imagePullSecrets"] == [{"name": name}]
        assert (spec["priorityClassName"], spec["runtimeClassName"]) == (name, name)
        assert spec["containers"][0]["securityContext"]["seLinuxOptions"] == {"type": name}


def test_lists_and_free_objects_may_be_null() -> None:
    empty = {"config": None, "configFiles": None, "nodes": {"tolerations": None}, "agent": {"extraEnv": None}}
    assert "tolerations" not in pod("gkm-agent", empty)["spec"]


def test_no_value_adds_an_object() -> None:
    evil = "x\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: evil}\n"
    values = {
        "agent": {"extraEnv": [{"name": "A", "value": evil}]},
        "controllers": {"extraEnv": [{"name": "A", "value": "{{ .Release.Name }} \" ' " + evil}]},
        "configFiles": {"a.pem": evil},
        "metrics": {"podMonitors": True, "podMonitorLabels": {"a": evil}},
    }
    assert "Secret" not in {document.key[0] for document in render(values)}
    assert pod("gkm-agent", values)["spec"]["containers"][0]["env"][-1]["value"] == evil


@pytest.mark.parametrize("number", [1_000_000_000_000, 107_374_182_400, 1_000_000])
def test_large_numbers_stay_integers(number: int) -> None:
    (found,) = (
        each.value for each in render({"config": {"store": {"maxBytes": number}}}) if each.key[0] == "ConfigMap"
    )
    assert yaml.load(found["data"]["config.yaml"], yaml.CSafeLoader)["store"]["maxBytes"] == number


@pytest.mark.parametrize(
    ("switch", "on", "feature"),
    [
        ("network.autoMNNVLEnabled", True, "domains"),
        ("taskGroups.enabled", True, "taskGroups"),
        ("topology.hyperNodes.enabled", True, "topology"),
        ("topology.nodeLabels", True, "topologyLabels"),
        ("fabric.nodeConditions", True, "fabricConditions"),
        ("fabric.nodeTaint", "NoSchedule", "fabricTaints"),
        ("kserve.enabled", True, "kserve"),
    ],
)
def test_a_switch_without_the_rights_for_it_is_refused(switch: str, on: object, feature: str) -> None:
    value: Any = on
    for key in reversed(switch.split(".")):
        value = {key: value}
    with pytest.raises(HelmFailed, match=rf"config.{switch} is set and features.{feature} is not"):
        render({"config": value})
    assert render({"config": value, "features": {feature: True}})


@pytest.mark.parametrize("word", ["image", "auto"])
def test_image_volumes_without_the_webhook_that_adds_them_are_refused(word: str) -> None:
    with pytest.raises(HelmFailed, match=r"config\.delivery is set and features\.podCaches is not"):
        render({"config": {"delivery": word}})


def test_with_image_volumes_nothing_runs_on_nodes_and_nothing_is_privileged() -> None:
    found = [each.value for each in render({"config": {"delivery": "image"}, "features": {"podCaches": True}})]
    assert not {each["kind"] for each in found} & {"DaemonSet", "CSIDriver"}
    accounts = {each["metadata"]["name"] for each in found if each["kind"] == "ServiceAccount"}
    subjects = {one["name"] for each in found for one in each.get("subjects", ())}
    assert subjects <= accounts, "rights without an account are those of whoever makes it"
    (space,) = (each for each in found if each["kind"] == "Namespace")
    assert space["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    specs = [each["spec"]["template"]["spec"] for each in found if each["kind"] == "Deployment"]
    assert len(specs) == len(DEPLOYMENTS)
    assert not [volume for spec in specs for volume in spec["volumes"] if "hostPath" in volume]
    for container in (each for spec in specs for each in spec["containers"]):
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["allowPrivilegeEscalation"] is False


def test_every_value_of_the_schema_has_a_default_and_the_reverse() -> None:
    schema = yaml.load((CHART / "values.schema.json").read_text(encoding="utf-8"), yaml.CSafeLoader)
    values = yaml.load((CHART / "values.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)

    def same(properties: Mapping[str, Any], found: Mapping[str, Any], where: str) -> None:
        assert properties.keys() - {"global"} == found.keys(), where
        for key, value in found.items():
            if value and "properties" in properties[key]:
                same(properties[key]["properties"], value, f"{where}.{key}")

    same(schema["properties"], values, "")


def test_the_configuration_is_written_as_it_is_and_any_process_can_read_it() -> None:
    wanted = {
        "verification": {"mode": "warn", "policies": [{"images": ["registry.test/*"], "keys": ["a key"]}]},
        "registries": {"hosts": {"registry.test": {"caFile": "/etc/gkm/ca.pem"}}},
    }
    (found,) = [
        each.value
        for each in render({"config": wanted, "configFiles": {"ca.pem": "one\ntwo\n"}})
        if each.key == ("ConfigMap", "gkm-system", "gkm-config")
    ]
    assert yaml.load(found["data"]["config.yaml"], yaml.CSafeLoader) == wanted
    assert found["data"]["ca.pem"] == "one\ntwo\n"
    assert config.parse(found["data"]["config.yaml"]).verification.mode == "warn"


def test_a_changed_configuration_restarts_the_processes_that_read_it_and_no_other() -> None:
    before, after = ({"config": {"verification": {"mode": mode}}} for mode in ("warn", "off"))
    for name in ("gkm-agent", *DEPLOYMENTS):
        assert pod(name, before) != pod(name, after), name
    assert pod("gkm-csi", before) == pod("gkm-csi", after) == pod("gkm-csi")


DESTINATION = {"registry": "registry.example/captured", "signing": {"keyFile": "/etc/gkm-capture/cosign.key"}}


@pytest.mark.parametrize(
    ("capture", "mode"),
    [
        ({}, None),
        ({"mode": "auto"}, None),
        ({"mode": "auto", "registry": "registry.example"}, None),
        (DESTINATION, "auto"),
        (DESTINATION | {"mode": "request"}, None),
        (DESTINATION | {"mode": "off"}, "off"),
        ({"mode": "off"}, "off"),
    ],
)
def test_the_driver_captures_by_itself_only_where_captures_have_a_destination(
    capture: Mapping[str, Any], mode: str | None
) -> None:
    """Without the variable the driver captures on request."""
    (container,) = pod("gkm-csi", {"config": {"capture": capture}})["spec"]["containers"]
    environment = {each["name"]: each.get("value") for each in container["env"]}
    assert environment.get("GKM_CAPTURE_MODE") == mode
    assert "GKM_CAPTURE_MIN_FREE_PERCENT" not in environment
    settings = config.parse(yaml.safe_dump({"capture": capture})).capture
    assert (mode == "auto") == (settings.is_pushed and settings.mode == "auto")


@pytest.mark.parametrize(
    ("key", "variable"),
    [("minFreePercent", "GKM_CAPTURE_MIN_FREE_PERCENT"), ("settledSeconds", "GKM_CAPTURE_SETTLED_SECONDS")],
)
@pytest.mark.parametrize("value", [0, 12.5, 90])
def test_the_driver_gets_a_number_of_the_configuration(key: str, variable: str, value: float) -> None:
    (container,) = pod("gkm-csi", {"config": {"capture": {key: value}}})["spec"]["containers"]
    found = [each["value"] for each in container["env"] if each["name"] == variable]
    assert [float(each) for each in found] == [value]
