"""What the values of the chart do to its pods and to what is around them, rendered by the real Helm."""

from typing import Any

import pytest
import yaml
from kustomizations.rendering import merged
from support.chart.helm import CHART, HelmFailed, Object, Values, render
from support.chart.rendered import ALL, DAEMONS, DEPLOYMENTS, container, kinds, pod
from support.peers import require

CHART_VERSION = yaml.load((CHART / "Chart.yaml").read_text(), yaml.CSafeLoader)["appVersion"]


@pytest.fixture(scope="module", autouse=True)
def _helm() -> None:
    require.peer("helm")


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ({}, f"gkm-agent:{CHART_VERSION}"),
        ({"registry": "registry.test:5000/team", "tag": "1.2"}, "registry.test:5000/team/gkm-agent:1.2"),
        ({"tag": "1.2", "digests": {"agent": f"sha256:{'a' * 64}"}}, f"gkm-agent@sha256:{'a' * 64}"),
    ],
)
def test_an_image_is_named_by_registry_and_tag_or_digest(image: dict[str, Any], expected: str) -> None:
    assert container("gkm-agent", {"image": image})["image"] == expected


def test_pull_secrets_and_policy_are_those_of_every_pod() -> None:
    values = {"image": {"pullSecrets": ["team"], "pullPolicy": "Always"}}
    for name in (*DAEMONS, *DEPLOYMENTS):
        assert pod(name, values)["spec"]["imagePullSecrets"] == [{"name": "team"}]
        assert container(name, values)["imagePullPolicy"] == "Always"
        assert container(name, {"image": {"tag": "latest"}})["imagePullPolicy"] == "IfNotPresent"


@pytest.mark.parametrize("path", ["/run", "/", "relative/gkm", "/var/../etc", "/var/lib/gkm #1", "/var/lib/gkm/"])
def test_a_directory_that_others_need_is_none_of_ours(path: str) -> None:
    with pytest.raises(HelmFailed, match="hostPaths"):
        render({"hostPaths": {"run": path}})


def test_labels_of_a_pod_monitor_do_not_replace_those_that_select_our_pods() -> None:
    labels = {"release": "prometheus", "app.kubernetes.io/name": "mine"}
    metrics = {"podMonitors": True, "podMonitorLabels": labels}
    monitors = [each.value for each in render({"metrics": metrics}) if each.key[0] == "PodMonitor"]
    assert monitors
    for each in monitors:
        assert each["metadata"]["labels"] == {
            "release": "prometheus",
            "app.kubernetes.io/name": each["metadata"]["name"],
            "app.kubernetes.io/part-of": "gkm",
        }


@pytest.mark.parametrize(
    ("vendor", "label"),
    [
        ("nvidia", "nvidia.com/gpu.present=true"),
        ("nvidia", "feature.node.kubernetes.io/pci-10de.present=true"),
        ("nvidia", "feature.node.kubernetes.io/pci-0302_10de.present=true"),
        ("nvidia", "gkm.io/gpu=true"),
        ("amd", "amd.com/gpu.device-id=74a1"),
        ("amd", "feature.node.kubernetes.io/pci-1002.present=true"),
        ("amd", "feature.node.kubernetes.io/pci-1200_1002.present=true"),
        ("amd", "gkm.io/gpu=true"),
    ],
)
def test_one_label_is_enough_for_both_daemons(vendor: str, label: str) -> None:
    for name in DAEMONS:
        spec = pod(name, {"nodes": {"gpuVendor": vendor}})["spec"]
        assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
        assert any(_selects(term, label) for term in _terms(spec))
        assert not any(_selects(term, "kubernetes.io/os=linux") for term in _terms(spec))


def _terms(spec: Object) -> list[Object]:
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms: list[Object] = required["nodeSelectorTerms"]
    return terms


def _selects(term: Object, label: str) -> bool:
    """Return whether a node with this label alone has what a term demands; all of its expressions must hold."""
    key, _, value = label.partition("=")
    return all(
        each["key"] == key and (each["operator"] == "Exists" or value in each["values"])
        for each in term["matchExpressions"]
    )


def test_every_node_or_terms_of_ones_own_can_be_chosen() -> None:
    own = [{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["gpu"]}]}]
    for name in DAEMONS:
        assert "affinity" not in pod(name, {"nodes": {"select": "all"}})["spec"]
        assert _terms(pod(name, {"nodes": {"terms": own}})["spec"]) == own


def test_both_daemons_run_before_others_and_on_every_tainted_node() -> None:
    for name in DAEMONS:
        spec = pod(name)["spec"]
        assert spec["priorityClassName"] == "system-node-critical"
        assert spec["tolerations"] == [{"operator": "Exists"}]


def test_no_more_than_the_csi_driver_is_privileged_unless_a_driver_comes_without_a_runtime() -> None:
    def privileged(values: Values | None = None) -> set[str]:
        names = (*DAEMONS, *DEPLOYMENTS)
        return {name for name in names if container(name, values)["securityContext"].get("privileged")}

    assert privileged() == {"gkm-csi"}
    assert privileged(ALL) == {"gkm-csi"}
    assert privileged({"agent": {"runtimeClassName": "", "driverRoot": "/run/nvidia/driver"}}) == set(DAEMONS)
    assert privileged({"nodes": {"gpuVendor": "amd"}}) == set(DAEMONS)


def test_a_driver_comes_by_its_runtime_or_from_its_root_and_not_by_both() -> None:
    assert pod("gkm-agent")["spec"]["runtimeClassName"] == "nvidia"
    values = {"agent": {"runtimeClassName": "", "driverRoot": "/run/nvidia/driver"}}
    spec = pod("gkm-agent", values)["spec"]
    assert "runtimeClassName" not in spec
    (volume,) = (each for each in spec["volumes"] if each["name"] == "driver")
    assert volume["hostPath"]["path"] == "/run/nvidia/driver"
    with pytest.raises(HelmFailed, match=r"driverRoot and agent\.runtimeClassName are both set"):
        render({"agent": {"driverRoot": "/"}})


def test_the_agent_writes_nothing_below_run_but_marks_of_waiting_pods_and_rewritten_files() -> None:
    mounts = {each["mountPath"]: each.get("readOnly", False) for each in container("gkm-agent")["volumeMounts"]}
    below = {path: read_only for path, read_only in mounts.items() if path.startswith("/run/gkm")}
    assert below == {"/run/gkm": True, "/run/gkm/volumes": True, "/run/gkm/waiting": False, "/run/gkm/relocated": False}


def test_kubelets_root_is_that_of_every_path_of_the_csi_driver() -> None:
    root = "/var/lib/k0s/kubelet"
    values = {"hostPaths": {"kubelet": root}}
    assert {"name": "GKM_KUBELET", "value": root} in container("gkm-csi", values)["env"]
    text = yaml.safe_dump(pod("gkm-csi", values))
    assert "/var/lib/kubelet" not in text
    assert f"{root}/plugins_registry" in text
    assert all(each["name"] != "GKM_KUBELET" for each in container("gkm-csi")["env"])


def test_replicas_run_apart_and_on_the_control_plane_if_it_is_wanted() -> None:
    role = "node-role.kubernetes.io/control-plane"
    for name in DEPLOYMENTS:
        usual, moved = (pod(name, {"operator": {"controlPlane": flag}})["spec"] for flag in (False, True))
        assert usual["affinity"].keys() == {"podAntiAffinity"}
        assert "tolerations" not in usual
        assert [each["matchExpressions"][0]["key"] for each in _terms(moved)] == [role]
        assert moved["tolerations"] == [{"key": role, "operator": "Exists", "effect": "NoSchedule"}]
        assert ("PodDisruptionBudget", name) in kinds()


@pytest.mark.parametrize("name", [*DAEMONS, *DEPLOYMENTS])
@pytest.mark.parametrize("values", [{}, ALL], ids=["default", "all features"])
def test_the_level_of_logs_is_that_of_every_process(name: str, values: Values) -> None:
    def levels(more: Values) -> list[str]:
        variables = container(name, merged((values, more))).get("env") or []
        return [each["value"] for each in variables if each["name"] == "GKM_LOG_LEVEL"]

    assert levels({}) == []
    assert levels({"logLevel": "debug"}) == ["debug"]


def test_a_namespace_that_helm_makes_is_not_the_charts() -> None:
    assert ("Namespace", "gkm-system") in kinds()
    assert ("Namespace", "gkm-system") not in kinds(namespace="gkm-system")
    assert kinds() - kinds(namespace="gkm-system") == {("Namespace", "gkm-system")}


def test_only_the_api_servers_reach_admission_besides_metrics() -> None:
    values = {"networkPolicies": {"enabled": True, "apiServers": ["10.0.0.1/32", "fd00::1/128"]}}
    found = {each.key[2]: each.value["spec"] for each in render(values) if each.key[0] == "NetworkPolicy"}
    webhooks, metrics = found["gkm-admission"]["ingress"]
    assert webhooks["from"] == [{"ipBlock": {"cidr": cidr}} for cidr in ("10.0.0.1/32", "fd00::1/128")]
    assert webhooks["ports"] == [{"port": "https"}]
    assert metrics == {"ports": [{"port": "health"}]}
    assert found["gkm-processes"]["ingress"] == [metrics]
    selected = found["gkm-processes"]["podSelector"]["matchExpressions"][0]["values"]
    # Pods of topology providers are there where values name them.
    assert sorted([*selected, "gkm-admission"]) == sorted((*DAEMONS, *DEPLOYMENTS, "gkm-provider"))


def test_people_without_cluster_wide_rights_get_none_by_aggregation() -> None:
    features = {"features": {"taskGroups": True}}
    roles = {each.key[2]: each.value for each in render(features) if each.key[0] == "ClusterRole"}
    labels = {name: set(role["metadata"].get("labels", {})) for name, role in roles.items()}
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    for scope in ("gkm", "gkm-cluster", "gkm-task-groups"):
        assert labels[f"{scope}-view"] == {f"{prefix}view"}
        assert labels[f"{scope}-edit"] == {f"{prefix}edit"}
        assert {verb for rule in roles[f"{scope}-view"]["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
    assert "labels" not in roles["gkm-task-group-templates"]["metadata"]
    without = render(features | {"rbac": {"aggregate": False}})
    alone = {each.key[2]: each.value for each in without if each.key[0] == "ClusterRole"}
    assert all("labels" not in role["metadata"] for name, role in alone.items() if name.endswith(("-view", "-edit")))


def test_helm_asks_before_it_removes_anything_unless_a_value_says_no() -> None:
    def hooks(values: Values) -> list[Object]:
        return [each.value for each in render(values, hooks=True) if each.key[0] == "Job"]

    (job,) = hooks({"image": {"pullSecrets": ["team"]}})
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
    spec = job["spec"]["template"]["spec"]
    back = "--otherwise=helm rollback gkm 1 --namespace default"
    assert spec["containers"][0]["args"] == ["uninstall-check", back]
    assert spec["imagePullSecrets"] == [{"name": "team"}]
    assert spec["serviceAccountName"] == "gkm-controllers"
    for name in ("nodeSelector", "tolerations", "affinity"):
        values = {"operator": {"controlPlane": True}, "controllers": {"nodeSelector": {"disk": "fast"}}}
        assert hooks(values)[0]["spec"]["template"]["spec"][name] == pod("gkm-controllers", values)["spec"][name]
    assert hooks({"uninstallCheck": False}) == []
    assert all(each.key[0] != "Job" for each in render())


def test_nodes_are_cleaned_after_a_change_to_image_volumes() -> None:
    """No daemon runs on nodes any more, and its account and the security level that it needed are gone."""
    values = {"config": {"delivery": "image"}, "features": {"podCaches": True}}
    cleaning = values | {"removeState": True}
    assert kinds(cleaning) - kinds(values) == {("DaemonSet", "gkm-remove-state"), ("ServiceAccount", "gkm-agent")}
    (namespace,) = (each.value for each in render(cleaning) if each.key[0] == "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"


def test_nodes_are_cleaned_in_place_of_the_daemons_and_after_the_same_check() -> None:
    values = {"removeState": True, "hostPaths": {"state": "/data/gkm"}}
    assert kinds() - kinds(values) == {("DaemonSet", name) for name in DAEMONS}
    assert kinds(values) - kinds() == {("DaemonSet", "gkm-remove-state")}
    spec = pod("gkm-remove-state", values)["spec"]
    assert "affinity" not in spec, "a node that has lost its label is cleaned as well"
    assert spec["serviceAccountName"] == "gkm-agent"
    paths = {each["name"]: each["hostPath"]["path"] for each in spec["volumes"]}
    kubelet = {"plugins": "/var/lib/kubelet/plugins", "registry": "/var/lib/kubelet/plugins_registry"}
    assert paths == {"state": "/data", "run": "/run"} | kubelet
    (remove,) = spec["initContainers"]
    places = ["--state=/host/state/gkm", "--run=/host/run/gkm", "--kubelet=/host/kubelet"]
    assert remove["args"] == ["--remove-state", *places]
    (hook,) = (each.value for each in render(values, hooks=True) if each.key[0] == "Job")
    assert hook["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete,pre-upgrade"
    # What is there before such an upgrade stays as it is, and this revision is none to go back to.
    assert hook["spec"]["template"]["spec"]["containers"][0]["args"] == ["uninstall-check"]
