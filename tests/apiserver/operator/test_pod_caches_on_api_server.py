"""Pods with caches on a real kube-apiserver, with the webhooks, the account and the rights that ship."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import yaml
from gkm.kube.client import connect
from gkm.kube.resources import GKMCACHES, Json, Resource
from support.cluster.cluster import Cluster
from support.cluster.gkm_objects import cache, namespace
from support.kube.our_kinds import status_writer
from support.operator.admission_process import AdmissionSite
from support.operator.deployment import ROOT, called_here, component
from support.operator.kserve import predictor_pod
from support.operator.pod_caches import a_pod, container
from support.operator.workloads import as_json

NAMESPACE, DEFAULTED = "pod-caches", "pod-caches-default"
SAMPLES = ROOT / "deploy" / "samples" / "by-label"
PODS: Resource[Json] = Resource("v1", "Pod", "pods", namespaced=True, type=Json)
REPORT = "gkm.io/injected"
CACHES = ((NAMESPACE, "llama", "triton"), ("default", "llama", "triton"), ("default", "qwen", "vllm"))
"""Namespace, name and runtime."""


class Site(AdmissionSite):
    """The cluster with the webhooks of pods."""

    def start(self) -> None:
        """Start the webhook (again) and wait until the API server calls it."""
        config = {"fabric": {"cacheLabels": True}}
        self.serve(config, "gkm-pod-caches", "--pod-caches=on", ("mutating",))
        self.cluster.until(lambda: REPORT in self.dry_run("probe", {"gkm.io/cache": "probe"}), "the webhook is called")
        for space, name, _ in CACHES:
            self.cluster.until(lambda space=space, name=name: self.knows(space, name), f"{space}/{name} to be observed")  # type: ignore[misc] # bound now

    def knows(self, space: str, name: str) -> bool:
        """Whether admission, which serves before it has listed the caches, knows the runtime of one."""
        report = self.dry_run("probe", {"gkm.io/cache": name}, space)[REPORT]
        return "skipped" not in json.loads(report)

    def dry_run(self, name: str, labels: Json, space: str = NAMESPACE, **fields: Any) -> Json:  # noqa: ANN401 -- JSON
        """Return the annotations of a pod that is only tried."""
        tried = pod(name, labels, space, **fields)
        annotations: Json = self.cluster.objects.create(tried, dry_run=True)["metadata"].get("annotations", {})
        return annotations

    def create(self, name: str, labels: Json, space: str = NAMESPACE, **fields: Any) -> Json:  # noqa: ANN401 -- JSON
        return self.api.create(PODS, pod(name, labels, space, **fields))


def pod(name: str, labels: Json, space: str, *containers: Json, **fields: Any) -> Json:  # noqa: ANN401 -- JSON
    annotations = fields.pop("annotations", None)
    made = a_pod(*containers, labels=labels, annotations=annotations, **fields)
    made["metadata"] |= {"name": name, "namespace": space}
    return {"apiVersion": "v1", "kind": "Pod"} | made


def sample(name: str) -> Json:
    (made,) = yaml.load_all((SAMPLES / f"{name}.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
    found: Json = made
    return found


@pytest.fixture(scope="module")
def site(gkm_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with ExitStack() as stack:
        made = Site(gkm_cluster, connect(str(gkm_cluster.kubeconfig)), stack, tmp_path_factory.mktemp("admission"))
        defaulted = namespace(DEFAULTED)
        defaulted["metadata"]["labels"] = {"gkm.io/default-cache": "llama"}
        gkm_cluster.apply([namespace(NAMESPACE), defaulted])
        for space in (NAMESPACE, DEFAULTED, "default"):
            gkm_cluster.until(lambda space=space: gkm_cluster.exists("serviceaccount", "default", space), "its account")  # type: ignore[misc] # bound now
        gkm_cluster.apply(
            [called_here(each, made.port) if "webhooks" in each else each for each in component("pod-caches")]
        )
        writer = connect(str(status_writer(gkm_cluster)))
        for space, name, runtime in CACHES:
            declared = cache(name, space, "registry.test/team/cache:1")
            gkm_cluster.apply(declared)
            written = {each: declared[each] for each in ("apiVersion", "kind", "metadata")}
            written["status"] = {"runtime": runtime}
            writer.apply(as_json(GKMCACHES), written, field_manager="gkm-controllers", subresource="status")
        made.start()
        yield made
        gkm_cluster.objects.delete_named("mutatingwebhookconfiguration", "gkm-pod-caches")


def volume(made: Json) -> Json:
    (found,) = (each["csi"]["volumeAttributes"] for each in made["spec"]["volumes"] if each["name"] == "gkm-cache")
    attributes: Json = found
    return attributes


def test_the_real_api_server_accepts_the_patched_pod(site: Site) -> None:
    made = site.create("labeled", {"gkm.io/cache": "llama"})
    assert volume(made) == {
        "cacheName": "llama",
        "mountPath": "/var/cache/gkm/llama",
        "readOnly": "false",
        "ifUnavailable": "empty",
    }
    (found,) = made["spec"]["containers"]
    assert {"name": "TRITON_CACHE_DIR", "value": "/var/cache/gkm/llama"} in found["env"]
    assert {"name": "gkm-cache", "mountPath": "/var/cache/gkm/llama"} in found["volumeMounts"]
    ((term),) = made["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["preference"] == {
        "matchExpressions": [{"key": f"cache.gkm.io/{NAMESPACE}.llama", "operator": "Exists"}]
    }


def test_only_pods_with_a_label_or_a_default_are_changed(site: Site) -> None:
    assert REPORT not in site.dry_run("plain", {"app": "x"})
    assert REPORT in site.dry_run("cluster", {"gkm.io/cluster-cache": "shared"})
    site.cluster.until(lambda: REPORT in site.dry_run("plain", {"app": "x"}, DEFAULTED), "the default to be observed")
    assert REPORT not in site.dry_run("out", {"gkm.io/cache": ""}, DEFAULTED)
    assert REPORT not in site.dry_run("ours", {"gkm.io/cache": "llama"}, "gkm-system")
    assert REPORT not in site.dry_run("system", {"gkm.io/cache": "llama"}, "kube-system")


def test_an_odd_label_is_admitted_with_a_warning_and_a_reason(site: Site) -> None:
    made = pod("odd", {"gkm.io/cache": "No_Name"}, NAMESPACE)
    said = "\n".join(site.cluster.objects.warnings(made, dry_run=False))
    assert "gkm.io/cache: gkm.io/cache: 'No_Name' cannot be the name of a cache" in said
    found = json.loads(site.cluster.get("pod", "odd", NAMESPACE)["metadata"]["annotations"][REPORT])
    assert found["skipped"][0]["what"] == "gkm.io/cache"


def test_names_with_the_characters_of_json_pointers_reach_the_pod_unchanged(site: Site) -> None:
    annotations = {"example.com/a": "~0/~1"}
    variables = [{"name": "A_B", "value": "~1/~0"}]
    mounts = [{"name": "data", "mountPath": "/x~1y/~0"}]
    own = container(resources={"limits": {"nvidia.com/gpu": "1"}}, env=variables, volumeMounts=mounts)
    made = site.api.create(
        PODS,
        pod(
            "escapes",
            {"gkm.io/cache": "llama"},
            NAMESPACE,
            own,
            annotations=annotations,
            volumes=[{"name": "data", "emptyDir": {}}],
        ),
    )
    assert made["metadata"]["annotations"].items() >= annotations.items()
    (found,) = made["spec"]["containers"]
    assert found["env"][0] == variables[0]
    assert found["volumeMounts"][0] == mounts[0]
    assert volume(made)["cacheName"] == "llama"


def test_the_samples_get_their_caches(site: Site) -> None:
    triton = site.api.create(PODS, sample("triton"))
    assert volume(triton)["cacheName"] == "llama"
    assert volume(triton)["ifUnavailable"] == "empty"
    site.cluster.apply(sample("vllm"))

    def of_deployment() -> Json | None:
        found = site.cluster.objects.every("pods", "default", labelSelector="app=vllm-by-label")
        return found[0] if found else None

    vllm = site.cluster.until(of_deployment, "the pod of the Deployment")
    (server,) = vllm["spec"]["containers"]
    assert {"name": "VLLM_CACHE_ROOT", "value": "/var/cache/gkm/qwen"} in server["env"]
    assert volume(vllm)["ifUnavailable"] == "wait"
    terms = vllm["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    expression = {"key": "cache.gkm.io/default.qwen", "operator": "Exists"}
    assert terms == {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}


@pytest.mark.usefixtures("kserve")
def test_the_sample_of_kserve_is_taken_and_its_pod_gets_the_cache(site: Site) -> None:
    """KServe does not run here: the pod is what its controller makes of the service that the API server returns."""
    service = site.cluster.objects.create(sample("kserve"))
    made = site.api.create(PODS, predictor_pod(service))
    with_cache = [
        each["name"]
        for each in made["spec"]["containers"]
        if {"name": "VLLM_CACHE_ROOT", "value": "/var/cache/gkm/qwen"} in each.get("env", [])
    ]
    assert with_cache == ["kserve-container"]
    assert volume(made)["cacheName"] == "qwen"
    assert json.loads(made["metadata"]["annotations"][REPORT]).get("skipped", []) == []


@pytest.mark.parametrize("name", ["triton", "vllm", "kserve"])
@pytest.mark.usefixtures("kserve")
def test_the_api_server_knows_every_field_of_a_sample(site: Site, name: str) -> None:
    tried = sample(name)
    tried["metadata"]["name"] = f"{name}-tried"
    # A field that it does not know is refused.
    assert site.cluster.objects.create(tried, dry_run=True)["metadata"]["name"] == f"{name}-tried"


def test_an_outage_blocks_no_pod(site: Site) -> None:
    site.process.stop()
    try:
        made = site.create("during", {"gkm.io/cache": "llama"})
        assert REPORT not in made["metadata"].get("annotations", {})
        assert all(each["name"] != "gkm-cache" for each in made["spec"]["volumes"])
    finally:
        site.start()
