"""The component for cert-manager, alone and beside others: every name fits the other, and nothing else changes."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from gkm_operator.main import SERVICE_NAMES
from support.chart import deploy_files
from support.cluster.cluster import Cluster
from support.host.processes import Process
from support.host.waiting import until
from support.operator import group_templates
from support.operator import workloads as domains
from support.operator.deployment import operator_command

NAMESPACE = "gkm-system"
Object = dict[str, Any]


def render(cluster: Cluster, directory: Path, *components: str) -> list[Object]:
    """Return what a kustomization of an administrator's own comes to."""
    deploy = os.path.relpath(deploy_files.rendered(), directory)
    overlay = {
        "resources": [f"{deploy}/base"],
        "components": [f"{deploy}/components/{component}" for component in components],
    }
    (directory / "kustomization.yaml").write_text(yaml.safe_dump(overlay), encoding="utf-8")
    return list(yaml.safe_load_all(cluster.kubectl("kustomize", str(directory))))


@pytest.fixture(scope="module")
def rendered(gkm_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> list[Object]:
    return render(gkm_cluster, tmp_path_factory.mktemp("overlay"), "cert-manager")


def _one(found: list[Object], kind: str, name: str) -> Object:
    (one,) = (each for each in found if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return one


def _in_our_namespace(found: list[Object], kind: str, name: str) -> Object:
    one = _one(found, kind, name)
    assert one["metadata"]["namespace"] == NAMESPACE
    return dict(one["spec"])


def test_with_cert_manager_every_name_fits_the_other(rendered: list[Object]) -> None:
    (hook,) = _one(rendered, "ValidatingWebhookConfiguration", "gkm-caches")["webhooks"]
    annotations = _one(rendered, "ValidatingWebhookConfiguration", "gkm-caches")["metadata"]["annotations"]
    namespace, name = annotations["cert-manager.io/inject-ca-from"].split("/")
    assert namespace == NAMESPACE
    certificate = _in_our_namespace(rendered, "Certificate", name)
    service = hook["clientConfig"]["service"]
    assert _in_our_namespace(rendered, "Service", service["name"])
    assert f"{service['name']}.{service['namespace']}.svc" in certificate["dnsNames"]
    assert certificate["dnsNames"] == SERVICE_NAMES.split(",")

    issuer = _in_our_namespace(rendered, "Issuer", certificate["issuerRef"]["name"])
    (authority,) = (
        each["spec"]
        for each in rendered
        if each["kind"] == "Certificate" and each["spec"]["secretName"] == issuer["ca"]["secretName"]
    )
    assert authority["isCA"]
    assert authority["privateKey"]["rotationPolicy"] == "Never"
    assert "selfSigned" in _in_our_namespace(rendered, "Issuer", authority["issuerRef"]["name"])

    pod = _in_our_namespace(rendered, "Deployment", "gkm-admission")["template"]["spec"]
    (container,) = pod["containers"]
    (volume,) = (each for each in pod["volumes"] if each["name"] == "tls")
    assert set(volume) == {"name", "secret"}
    assert volume["secret"]["secretName"] == certificate["secretName"]
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "tls")
    for flag, file in (("--tls-cert", "tls.crt"), ("--tls-key", "tls.key")):
        assert f"{flag}={mount['mountPath']}/{file}" in container["args"]


def test_with_cert_manager_nothing_else_changes_and_the_webhook_has_no_rights(
    gkm_cluster: Cluster, rendered: list[Object]
) -> None:
    base = list(yaml.safe_load_all(gkm_cluster.kubectl("kustomize", str(deploy_files.rendered() / "base"))))

    def names(found: list[Object]) -> set[tuple[str, str]]:
        return {(each["kind"], each["metadata"]["name"]) for each in found}

    added = {(kind, name) for kind in ("Certificate", "Issuer") for name in ("gkm-ca",)}
    added |= {("Certificate", "gkm-admission"), ("Issuer", "gkm-self-signed")}
    assert names(rendered) - names(base) == added
    assert names(base) <= names(rendered)
    emptied = {("ClusterRole", "gkm-admission"), ("ClusterRole", "gkm-controllers-ca")}
    emptied |= {("Role", "gkm-admission-ca"), ("Role", "gkm-controllers-ca")}
    assert [_one(rendered, *each)["rules"] for each in emptied] == [[]] * 4
    changed = emptied | {("Deployment", "gkm-controllers")}
    changed |= {(kind, "gkm-admission") for kind in ("Deployment", "ServiceAccount")}
    changed |= {("ValidatingWebhookConfiguration", "gkm-caches")}
    assert _one(rendered, "ServiceAccount", "gkm-admission")["automountServiceAccountToken"] is False
    assert (
        "automountServiceAccountToken" not in _one(rendered, "Deployment", "gkm-admission")["spec"]["template"]["spec"]
    )
    for each in rendered:
        key = (each["kind"], each["metadata"]["name"])
        if key not in added:
            assert (each == _one(base, *key)) == (key not in changed), key


def test_the_cert_manager_component_has_valid_arguments_and_manifests(
    gkm_cluster: Cluster, rendered: list[Object], tmp_path: Path
) -> None:
    (container,) = _one(rendered, "Deployment", "gkm-admission")["spec"]["template"]["spec"]["containers"]
    words = [word for word in container["args"] if not word.startswith("--config=")]
    process = Process.start("admission", operator_command(*words, "--check-config"), tmp_path / "log")
    assert until(lambda: process.popen.poll() is not None, "it ends")
    assert process.log.read_text(encoding="utf-8") == "gkm-operator: the configuration is good\n"
    ours = [each for each in rendered if not each["apiVersion"].startswith("cert-manager.io/")]
    text = "\n---\n".join(json.dumps(each) for each in ours)
    said = gkm_cluster.kubectl("apply", "--server-side", "--dry-run=server", "--filename=-", input=text)
    assert len(said.splitlines()) == len(ours)


CACHES = ("ValidatingWebhookConfiguration", "gkm-caches")
VARIABLES = {"domains": "GKM_DOMAINS", "task-groups": "GKM_TASK_GROUPS"}
KINDS = {"domains": domains.KINDS, "task-groups": group_templates.KINDS}


@pytest.mark.parametrize(
    "components",
    [
        ("domains",),
        ("task-groups",),
        ("domains", "task-groups"),
        ("domains", "cert-manager"),
        ("domains", "task-groups", "cert-manager"),
    ],
    ids="-".join,
)
def test_with_components_every_configuration_gets_a_ca_and_the_pod_its_token(
    gkm_cluster: Cluster, tmp_path: Path, components: tuple[str, ...]
) -> None:
    found = render(gkm_cluster, tmp_path, *components)
    by_cert_manager, reviewing = "cert-manager" in components, [each for each in components if each in KINDS]
    configurations = {
        (f"{kind}WebhookConfiguration", f"gkm-{each}") for each in reviewing for kind in ("Mutating", "Validating")
    } | {CACHES}
    assert {(each["kind"], each["metadata"]["name"]) for each in found if "webhooks" in each} == configurations
    injected = {each for each in configurations if "annotations" in _one(found, *each)["metadata"]}
    pod = _in_our_namespace(found, "Deployment", "gkm-admission")["template"]["spec"]
    (container,) = pod["containers"]
    own = [word for word in container["args"] if word.startswith("--webhook-configuration=")]
    assert injected == (configurations if by_cert_manager else set())
    assert len(own) == (0 if by_cert_manager else len(configurations))
    assert pod["automountServiceAccountToken"] is True
    assert {each["name"]: each["value"] for each in container["env"]} == {VARIABLES[each]: "on" for each in reviewing}
    assert container["resources"]["limits"]["memory"] == ("768Mi" if "task-groups" in components else "512Mi")
    roles = {each["metadata"]["name"]: each["rules"] for each in found if each["kind"] == "ClusterRole"}
    allowed = {name for name, rules in roles.items() if name.endswith("-ca") and rules}
    wanted = {"gkm-controllers-ca"} | {
        f"gkm-{who}-{each}-ca" for who in ("admission", "controllers") for each in reviewing
    }
    assert allowed == (set() if by_cert_manager else wanted)
    (copying,) = _in_our_namespace(found, "Deployment", "gkm-controllers")["template"]["spec"]["containers"]
    assert [word for word in copying["args"] if word.startswith("--webhook-configuration=")] == own
    words = [word for word in container["args"] if not word.startswith("--config=")]
    process = Process.start("admission", operator_command(*words, "--check-config"), tmp_path / "log")
    assert until(lambda: process.popen.poll() is not None, "it ends")
    assert process.popen.returncode == 0, process.tail()


@pytest.mark.parametrize(
    ("component", "lenient"), [("domains", {"/pods"}), ("task-groups", {"/taskgroups", "/taskgroups/pods"})]
)
def test_every_webhook_of_a_component_calls_a_path_that_is_served(
    gkm_cluster: Cluster, tmp_path: Path, component: str, lenient: set[str]
) -> None:
    found = render(gkm_cluster, tmp_path, component)
    name = f"gkm-{component}"
    hooks = [hook for each in found if each["metadata"]["name"] == name for hook in each.get("webhooks", ())]
    assert sorted(hook["clientConfig"]["service"]["path"] for hook in hooks) == sorted(KINDS[component])
    policies = {hook["clientConfig"]["service"]["path"]: hook["failurePolicy"] for hook in hooks}
    assert {path for path, policy in policies.items() if policy == "Ignore"} == lenient
