"""Helm installs, upgrades and removes GKM on a real API server. No node is there, so no pod runs."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml
from kustomizations.directories import OVERLAYS
from kustomizations.rendering import Overlay, merged
from support.chart.deploy_files import rendered
from support.chart.helm import CHART, HelmFailed, Object, Values, render
from support.chart.release import Release
from support.chart.rendered import ALL
from support.cluster.cluster import Cluster
from support.operator.domain_cluster import any_kind
from support.peers import build as peers
from support.peers import require

CRDS = CHART.parents[2] / "crds"
FOREIGN = (
    any_kind("monitoring.coreos.com", "v1", "PodMonitor"),
    any_kind("monitoring.coreos.com", "v1", "PrometheusRule"),
    any_kind("cert-manager.io", "v1", "Certificate"),
    any_kind("cert-manager.io", "v1", "Issuer"),
)
WITHOUT_CERT_MANAGER: Values = merged((ALL, {"admission": {"certificates": "own"}}))
WEBHOOKS = ("validatingwebhookconfiguration", "gkm-caches")


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A control plane of its own: Helm owns every object that the shared one has without it."""
    for command in ("helm", "etcd", "kube-apiserver", "kube-controller-manager", "kubectl"):
        require.peer(command)
    with Cluster.start(tmp_path_factory.mktemp("helm")) as running:
        running.apply([*FOREIGN])
        yield running


@pytest.fixture
def release(empty: Cluster) -> Iterator[Release]:
    made = Release(empty)
    yield made
    if there(empty):
        made.uninstall()


def there(cluster: Cluster) -> set[tuple[str, str]]:
    """Return kind and name of every object in the cluster that the chart can make."""
    kinds = sorted({each.key[0] for each in render(ALL)})
    found = json.loads(cluster.kubectl("get", ",".join(kinds), "--all-namespaces", "--output=json"))["items"]
    names = ((each["kind"], each["metadata"]["name"]) for each in found)
    return {(kind, name) for kind, name in names if name == "csi.gkm.io" or name.startswith("gkm-")}


def is_installed(cluster: Cluster, values: Values) -> bool:
    return there(cluster) == wanted(values)


def wanted(values: Values | None = None) -> set[tuple[str, str]]:
    return {(each.key[0], each.key[2]) for each in render(values)}


@pytest.mark.parametrize("values", [{}, ALL], ids=["default", "all"])
def test_what_is_installed_is_removed_and_can_be_installed_again(
    empty: Cluster, release: Release, values: Values
) -> None:
    for _ in range(2):
        release.install(values)
        assert there(empty) == wanted(values)
        assert empty.get("customresourcedefinition", "gkmcaches.gkm.io")["spec"]["names"]["kind"] == "GKMCache"
        release.uninstall()
        assert there(empty) == set()
    # What caches there are is not for Helm to delete.
    assert empty.exists("customresourcedefinition", "gkmcaches.gkm.io")


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda each: each.name)
def test_each_values_file_is_installed(empty: Cluster, release: Release, overlay: Overlay) -> None:
    release.install(files=[overlay.values_file])
    assert there(empty) == {(each.key[0], each.key[2]) for each in render(files=[overlay.values_file])}


def test_an_upgrade_adds_and_removes_a_feature_and_leaves_the_authorities_of_webhooks(
    empty: Cluster, release: Release
) -> None:
    release.install()
    authority = empty.control_plane.authority.base64
    written = [{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": authority}]
    empty.kubectl("patch", *WEBHOOKS, "--type=json", f"--patch={json.dumps(written)}", "--field-manager=gkm-admission")
    for values in (WITHOUT_CERT_MANAGER, {}):
        release.install(values)
        # A namespace takes a while to go.
        empty.until(partial(is_installed, empty, values), "exactly the objects of the values")
        (hook,) = empty.get(*WEBHOOKS)["webhooks"]
        assert hook["clientConfig"]["caBundle"] == authority


def test_certificates_change_from_our_own_to_those_of_cert_manager_and_back(empty: Cluster, release: Release) -> None:
    for certificates, source in (("own", "emptyDir"), ("cert-manager", "secret"), ("own", "emptyDir")):
        release.install({"admission": {"certificates": certificates}})
        pod = empty.get("deployment", "gkm-admission", "gkm-system")["spec"]["template"]["spec"]
        (volume,) = (each for each in pod["volumes"] if each["name"] == "tls")
        assert volume.keys() == {"name", source}
        annotations = empty.get(*WEBHOOKS)["metadata"]["annotations"]
        assert ("cert-manager.io/inject-ca-from" in annotations) == (certificates == "cert-manager")


def test_what_kubectl_applied_can_be_taken_over(empty: Cluster) -> None:
    empty.apply(CRDS)
    empty.kubectl("apply", "--server-side", "--kustomize", str(rendered() / "base"))
    release = Release(empty)
    with pytest.raises(HelmFailed, match="exists and cannot be imported"):
        release.install()
    release.install({"controllers": {"replicas": 1}}, options=["--take-ownership", "--force-conflicts"])
    assert empty.get("deployment", "gkm-controllers", "gkm-system")["spec"]["replicas"] == 1
    assert there(empty) == wanted()
    release.uninstall()
    assert there(empty) == set()


def test_a_namespace_made_for_a_pull_secret_is_taken_over(empty: Cluster, release: Release) -> None:
    empty.kubectl("create", "namespace", "gkm-system")
    empty.kubectl("create", "secret", "generic", "gkm-images", "--namespace=gkm-system")
    release.install({"image": {"pullSecrets": ["gkm-images"]}}, options=["--take-ownership"])
    assert empty.get("namespace", "gkm-system")["metadata"]["labels"]["app.kubernetes.io/part-of"] == "gkm"
    assert empty.exists("secret", "gkm-images", "gkm-system")


def test_an_upgrade_leaves_the_objects_of_users(empty: Cluster, release: Release) -> None:
    release.install({"admission": {"replicas": 1}})
    # Nothing answers the webhook here.
    empty.kubectl("delete", *WEBHOOKS)
    empty.apply(
        {
            "apiVersion": "gkm.io/v1alpha1",
            "kind": "GKMCache",
            "metadata": {"name": "llama", "namespace": "default"},
            "spec": {"image": "registry.test/team/cache:1"},
        }
    )
    before = empty.get("gkmcache", "llama", "default")
    release.install()
    release.uninstall()
    assert empty.get("gkmcache", "llama", "default") == before
    empty.kubectl("delete", "gkmcache", "llama", "--namespace=default")


def test_a_release_in_the_namespace_itself_is_removed_without_it(empty: Cluster) -> None:
    release = Release(empty, namespace="gkm-system")
    printed = release.install()
    assert "label namespace gkm-system pod-security.kubernetes.io/enforce=privileged" in printed
    assert there(empty) == wanted()
    release.uninstall()
    assert there(empty) == {("Namespace", "gkm-system")}
    empty.kubectl("delete", "namespace", "gkm-system")


def without(kind: str, *fields: str) -> Object:
    """Return a definition of ours that lacks fields of its spec."""
    found: Object = yaml.load((CRDS / f"gkm.io_{kind}.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
    (version,) = found["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    for field in fields:
        del schema["properties"][field]
    # Rules and required fields name some of them.
    schema.pop("x-kubernetes-validations", None)
    schema["required"] = [each for each in schema.get("required", []) if each not in fields]
    version["schema"]["openAPIV3Schema"].pop("x-kubernetes-validations", None)
    return found


def test_kinds_of_another_product_or_version_are_refused_with_what_to_do(empty: Cluster, release: Release) -> None:
    empty.apply(CRDS)
    release.install()
    name = "gkmcaches.gkm.io"
    empty.kubectl("replace", "--filename=-", input=json.dumps(without("gkmcaches", "imagePullSecrets", "updatePolicy")))
    with pytest.raises(HelmFailed, match=f"{name} is not that of this chart, it lacks spec.imagePullSecrets, spec.up"):
        release.install()
    empty.apply(CRDS)
    release.install()
    empty.kubectl("delete", "customresourcedefinition", "runs.gkm.io")
    with pytest.raises(HelmFailed, match=r"runs\.gkm\.io is missing.*: gkm crds --apply"):
        release.install()
    empty.apply(CRDS)
    release.install()


@pytest.mark.parametrize("way", [r"version: (gkm [^(]*)", r"without gkm: (kubectl [^)]*)"], ids=["gkm", "kubectl"])
def test_the_commands_that_helm_prints_replace_kinds_that_helm_made(
    empty: Cluster, release: Release, tmp_path: Path, way: str
) -> None:
    empty.kubectl("delete", "--filename", str(CRDS), "--ignore-not-found")
    older = tmp_path / "gkm"
    shutil.copytree(CHART, older)
    definition = without("gkmcaches", "imagePullSecrets", "updatePolicy")
    (older / "crds" / "gkm.io_gkmcaches.yaml").write_text(yaml.safe_dump(definition), encoding="utf-8")
    Release(empty, chart=older).install()
    with pytest.raises(HelmFailed) as refusal:
        release.install()
    (command,) = re.findall(way, str(refusal.value))
    places = [str(Path(sys.executable).parent), str(peers.binary("kubectl").parent), os.environ["PATH"]]
    environment = {**os.environ, "PATH": ":".join(places), "KUBECONFIG": str(empty.kubeconfig)}
    # Word for word, in the checkout of the new version.
    done = subprocess.run(
        command.split(), cwd=CRDS.parent, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    release.install()


def test_the_daemons_give_way_to_the_cleanup_of_nodes(empty: Cluster, release: Release) -> None:
    release.install()
    release.install({"removeState": True})
    assert there(empty) == wanted({"removeState": True})
    assert {name for kind, name in there(empty) if kind == "DaemonSet"} == {"gkm-remove-state"}


def test_a_second_release_is_refused(empty: Cluster, release: Release) -> None:
    release.install()
    with pytest.raises(HelmFailed, match="gkm-system"):
        Release(empty, namespace="second").install()
    assert there(empty) == wanted()


def test_the_chart_is_no_larger_than_a_release_may_be(empty: Cluster, release: Release) -> None:
    release.install(ALL)
    (secret,) = empty.objects.every("secrets", "default", labelSelector="owner=helm")
    assert len(secret["data"]["release"]) < 1 << 19, "etcd takes 1 MiB, and a release grows"


def pod_of_gkm(**status: object) -> Object:
    """Return a pod of the CSI driver; where no kubelet runs, its status is what the test says."""
    labels = {"app.kubernetes.io/name": "gkm-csi", "app.kubernetes.io/part-of": "gkm"}
    metadata = {"name": "gkm-csi-test", "namespace": "gkm-system", "labels": labels}
    container = {"name": "csi", "image": "i"}
    spec = {"containers": [container], "schedulerName": "none"}
    found = {"name": "csi", "image": "i", "imageID": "", "ready": False, "restartCount": 0, **status}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": "Pending", "containerStatuses": [found]},
    }


def put_pod(cluster: Cluster, made: Object) -> None:
    cluster.until(lambda: cluster.exists("serviceaccount", "default", "gkm-system"), "the account of pods")
    cluster.apply({key: value for key, value in made.items() if key != "status"})
    patch = f"--patch={json.dumps({'status': made['status']})}"
    cluster.kubectl("patch", "pod", "gkm-csi-test", "--namespace=gkm-system", "--subresource=status", patch)


def until_the_check_is_wanted(cluster: Cluster) -> None:
    """Wait until the policies, which are as young as the release, have seen what the test made."""
    container = {"name": "check", "image": "i"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    metadata = {"name": "gkm-uninstall-check", "namespace": "gkm-system"}
    spec = {"completions": 0, "template": template}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}

    def is_wanted() -> bool:
        words = ("create", "--dry-run=server", "--output=json", "--filename=-")
        return bool(json.loads(cluster.kubectl(*words, input=json.dumps(job)))["spec"]["completions"] == 1)

    cluster.until(is_wanted, "the Job of the check to want a pod")


POLICIES = ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings")
NEVER_STARTED = pod_of_gkm(state={"waiting": {"reason": "ImagePullBackOff"}})
STARTED = {
    "runs": pod_of_gkm(state={"running": {}}, started=True, ready=True),
    "ran before": pod_of_gkm(restartCount=3, state={"waiting": {"reason": "CrashLoopBackOff"}}),
    "has ended": pod_of_gkm(state={"terminated": {"exitCode": 1}}),
}


def test_an_installation_that_never_ran_is_removed_without_the_check(empty: Cluster) -> None:
    """No node is here, so that a Job of the check would never end."""
    release = Release(empty, hooks=True)
    release.install()
    put_pod(empty, NEVER_STARTED)
    release.uninstall("--timeout=45s")
    assert there(empty) == set()
    assert [each for kind in POLICIES for each in empty.objects.every(kind)] == []
    empty.until(lambda: not empty.exists("namespace", "gkm-system"), "the namespace to go")


@pytest.mark.parametrize("status", STARTED.values(), ids=STARTED)
def test_once_a_container_of_gkm_has_started_the_check_decides(
    empty: Cluster, release: Release, status: Object
) -> None:
    release.install()
    put_pod(empty, status)
    until_the_check_is_wanted(empty)
    with pytest.raises(HelmFailed, match="Job/gkm-system/gkm-uninstall-check not ready"):
        Release(empty, hooks=True).uninstall("--timeout=15s")
    assert empty.get("job", "gkm-uninstall-check", "gkm-system")["spec"]["completions"] == 1
    assert there(empty) >= wanted()
    empty.kubectl("delete", "pod", "gkm-csi-test", "--namespace=gkm-system", "--grace-period=0", "--force")
    empty.kubectl("delete", "job", "gkm-uninstall-check", "--namespace=gkm-system")


def test_without_the_policy_of_the_api_server_the_check_always_runs() -> None:
    """As on an API server before 1.36: `helm template` asks no cluster."""
    (job,) = (each.value for each in render(hooks=True) if each.key[0] == "Job")
    assert job["spec"]["completions"] == 1
    assert all(not each.key[0].startswith("Mutating") for each in render(hooks=True))
