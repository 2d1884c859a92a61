"""Image volumes on a real kube-apiserver, with `delivery: auto`, and the account and rights that the chart then has."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from gkm.kube.client import connect
from gkm.kube.resources import GKMCACHES, Json
from support.chart.helm import render
from support.cluster.cluster import Cluster
from support.cluster.gkm_objects import cache, namespace
from support.kube.our_kinds import status_writer
from support.operator.admission_process import AdmissionSite
from support.operator.deployment import called_here, manifests
from support.operator.pod_caches import a_pod, container
from support.operator.workloads import as_json

SPACE, REPORT, PATH = "image-volumes", "gkm.io/injected", "/var/cache/gkm/llama"
IMAGE = "registry.test/team/cache:1"
REFERENCE = f"registry.test/team/cache@sha256:{'a' * 64}"
H100 = {"nvidia.com/gpu.compute.major": "9", "nvidia.com/gpu.compute.minor": "0"}
CONFIG: Json = {"delivery": "auto"}
(DRIVER,) = (each for each in manifests() if each["kind"] == "CSIDriver")
"""Other tests of the cluster may have applied it."""


class Site(AdmissionSite):
    """The cluster with the webhook of pods and a verified cache."""

    def pod(self, name: str = "tried", nodes: str = "preferred", **fields: Any) -> Json:  # noqa: ANN401 -- JSON
        annotations = {"gkm.io/cache-mode": "read-only", "gkm.io/cache-nodes": nodes}
        made = a_pod(container(), labels={"gkm.io/cache": "llama"}, annotations=annotations, **fields)
        made["metadata"] |= {"name": name, "namespace": SPACE}
        return {"apiVersion": "v1", "kind": "Pod"} | made

    def volume(self, **fields: Any) -> Json:  # noqa: ANN401 -- JSON
        """Return the volume that a pod would get, {} for none."""
        made = self.cluster.objects.create(self.pod(**fields), dry_run=True)
        return next((each for each in made["spec"].get("volumes", ()) if each["name"] == "gkm-cache"), {})


@pytest.fixture(scope="module")
def site(gkm_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with ExitStack() as stack:
        made = Site(gkm_cluster, connect(str(gkm_cluster.kubeconfig)), stack, tmp_path_factory.mktemp("admission"))
        gkm_cluster.apply(namespace(SPACE))
        gkm_cluster.until(lambda: gkm_cluster.exists("serviceaccount", "default", SPACE), "its account")
        secret = {"imagePullSecrets": [{"name": "of-the-account"}]}
        gkm_cluster.kubectl("patch", "serviceaccount", "default", "-n", SPACE, "-p", json.dumps(secret))
        chart = render({"config": CONFIG, "features": {"podCaches": True}})
        found = [each.value for each in chart if each.source.startswith("pod-caches/")]
        gkm_cluster.apply([called_here(each, made.port) if "webhooks" in each else each for each in found])
        declared = cache("llama", SPACE, IMAGE)
        declared["spec"]["imagePullSecrets"] = [{"name": "of-the-cache"}]
        gkm_cluster.apply(declared)
        volume = {"reference": REFERENCE, "path": PATH, "gpus": ["sm_90"]}
        written = {each: declared[each] for each in ("apiVersion", "kind", "metadata")}
        written["status"] = {"runtime": "triton", "image": IMAGE, "imageVolume": volume}
        writer = connect(str(status_writer(gkm_cluster)))
        writer.apply(as_json(GKMCACHES), written, field_manager="gkm-controllers", subresource="status")
        gkm_cluster.objects.delete(DRIVER)
        stack.callback(gkm_cluster.apply, DRIVER)
        made.serve(CONFIG, "gkm-pod-caches", "--pod-caches=on", ("mutating",))
        gkm_cluster.until(lambda: "image" in made.volume(nodeSelector=H100), "the webhook to see the cache")
        yield made
        gkm_cluster.objects.delete_named("mutatingwebhookconfiguration", "gkm-pod-caches")


def test_the_api_server_stores_the_pod_with_its_image_volume(site: Site) -> None:
    made = site.cluster.objects.create(site.pod("stored", nodeSelector=H100))
    (volume,) = [each for each in made["spec"]["volumes"] if each["name"] == "gkm-cache"]
    assert volume["image"] == {"reference": REFERENCE, "pullPolicy": "IfNotPresent"}
    (found,) = made["spec"]["containers"]
    mount = {"name": "gkm-cache", "mountPath": PATH, "subPath": "io.triton.cache"}
    assert mount.items() <= next(each for each in found["volumeMounts"] if each["name"] == "gkm-cache").items()
    assert {"name": "TRITON_CACHE_DIR", "value": PATH} in found["env"]
    secrets = [{"name": "of-the-account"}, {"name": "of-the-cache"}]
    assert made["spec"]["imagePullSecrets"] == secrets


def test_a_pod_that_requires_nodes_gets_them_and_another_one_learns_how(site: Site) -> None:
    made = site.cluster.objects.create(site.pod(nodes="required"), dry_run=True)
    nodes = made["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    ((term),) = nodes["nodeSelectorTerms"]
    assert {each["key"]: each["values"] for each in term["matchExpressions"]} == {k: [v] for k, v in H100.items()}
    said = "\n".join(site.cluster.objects.warnings(site.pod(), dry_run=True))
    assert "the pod may start on a node that the cache is not for: write nodeSelector" in said
    assert site.volume() == {}


def test_auto_follows_the_csidriver_while_it_serves(site: Site) -> None:
    site.cluster.apply(DRIVER)
    site.cluster.until(lambda: "csi" in site.volume(nodeSelector=H100), "volumes of the driver")
    site.cluster.objects.delete(DRIVER)
    site.cluster.until(lambda: "image" in site.volume(nodeSelector=H100), "image volumes")
