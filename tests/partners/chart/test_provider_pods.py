"""One template of the chart serves the topology providers of GKM and those of others."""

from typing import Any

import pytest
from support.chart.helm import HelmFailed, Object, Values, render

FEATURE: Values = {"features": {"topology": True}}


def objects(*providers: Object, **more: Any) -> dict[tuple[str, str], Object]:  # noqa: ANN401 -- values
    """The objects that these providers add, by kind and name."""
    values = {**FEATURE, "topology": {"providers": list(providers)}, **more}
    found = {(key[0], key[2]): each.value for each in render(values) for key in [each.key]}
    return {key: value for key, value in found.items() if key[1].startswith("gkm-provider-") and key[1][13:] != "trees"}


def container(found: dict[tuple[str, str], Object], name: str) -> Object:
    pod = found["Deployment", f"gkm-provider-{name}"]["spec"]["template"]["spec"]
    (only,) = pod["containers"]
    found_pod: Object = pod | only
    return found_pod


def rules(found: dict[tuple[str, str], Object], name: str) -> set[tuple[str, str, str]]:
    """What a provider may do in all namespaces: verb, resource and names."""
    listed = found["ClusterRole", f"gkm-provider-{name}"]["rules"]
    return {
        (verb, resource, ",".join(rule.get("resourceNames", [])))
        for rule in listed
        for verb in rule["verbs"]
        for resource in rule["resources"]
    }


OWN = {("create", "providertrees", ""), ("get", "providertrees", "acme"), ("patch", "providertrees", "acme")}


def read(*resources: str) -> set[tuple[str, str, str]]:
    return {(verb, resource, "") for verb in ("list", "watch") for resource in resources}


def test_a_built_in_provider_has_what_it_reads_and_its_own_object() -> None:
    found = objects({"name": "ufm", "secret": "fabric-manager"}, {"name": "infiniband"}, {"name": "tree-file"})
    assert ("Role", "gkm-provider-infiniband") in found
    assert not [key for key in found if key[0] == "Role" and key[1] != "gkm-provider-infiniband"]
    assert rules(found, "ufm") >= read("nodes", "nodefabrics")
    assert not rules(found, "tree-file") & read("nodefabrics", "hypernodes")
    ufm = container(found, "ufm")
    assert ufm["args"] == [
        "provider",
        "--config=/etc/gkm/config.yaml",
        "--name=ufm",
        "--credentials=/etc/gkm-credentials",
    ]
    assert {"name": "credentials", "secret": {"secretName": "fabric-manager", "defaultMode": 0o440}} in ufm["volumes"]
    limits = {name: container(found, name)["resources"]["limits"]["memory"] for name in ("ufm", "tree-file")}
    assert limits == {"ufm": "512Mi", "tree-file": "256Mi"}


def test_a_provider_of_others_has_its_image_its_class_and_its_limits() -> None:
    volume = {"name": "modules", "configMap": {"name": "acme"}}
    mount = {"name": "modules", "mountPath": "/providers"}
    acme = {
        "name": "acme",
        "class": "acme.fabric:Fabric",
        "image": "registry.example/acme:1",
        "path": "/providers",
        "resources": {"limits": {"memory": "2Gi"}},
        "extraEnv": [{"name": "ZONE", "value": "a"}],
        "extraVolumes": [volume],
        "extraVolumeMounts": [mount],
    }
    found = objects(acme)
    assert rules(found, "acme") == OWN | read("nodes", "nodefabrics", "hypernodes")
    pod = container(found, "acme")
    assert pod["args"][2:] == ["--name=acme", "--class=acme.fabric:Fabric", "--path=/providers"]
    assert (pod["image"], pod["resources"]) == ("registry.example/acme:1", {"limits": {"memory": "2Gi"}})
    assert volume in pod["volumes"]
    assert mount in pod["volumeMounts"]
    assert {"name": "ZONE", "value": "a"} in pod["env"]
    assert pod["serviceAccountName"] == "gkm-provider-acme"


def test_each_provider_runs_once_as_a_user_without_rights_on_the_node() -> None:
    deployment = objects({"name": "lldp"})["Deployment", "gkm-provider-lldp"]["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})
    pod = deployment["template"]["spec"]
    (only,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert only["securityContext"]["readOnlyRootFilesystem"]
    assert only["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"topology": {"providers": [{"name": "ufm"}]}}, "features.topology is not"),
        ({**FEATURE, "topology": {"providers": [{"name": "labels"}]}}, "which the controllers read themselves"),
        ({**FEATURE, "topology": {"providers": [{"name": "UFM"}]}}, "name"),
        ({**FEATURE, "topology": {"providers": [{"name": "x", "class": "a b"}]}}, "class"),
        ({**FEATURE, "topology": {"providers": [{"class": "a:B"}]}}, "name"),
        ({**FEATURE, "topology": {"providers": [{"name": "x", "memory": "1Gi"}]}}, "memory"),
    ],
)
def test_values_that_no_pod_could_have_are_refused(values: Values, why: str) -> None:
    with pytest.raises(HelmFailed) as caught:
        render(values)
    assert why in str(caught.value)
