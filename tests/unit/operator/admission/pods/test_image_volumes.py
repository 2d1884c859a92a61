"""Image volumes: which member a pod gets before it has a node, at which digest, and why it gets none."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from gkm.api.config import Config
from gkm.kube.api import Api
from gkm.kube.resources import CSI_DRIVERS
from support.grove.objects import NAMESPACE, Json
from support.operator.pod_caches import GPU, PodCaches, a_pod, container, report
from support.operator.workloads import Answer

PATH = "/var/cache/gkm/llama"
MAJOR, MINOR = "nvidia.com/gpu.compute.major", "nvidia.com/gpu.compute.minor"
H100, A100 = {MAJOR: "9", MINOR: "0"}, {MAJOR: "8", MINOR: "0"}
READ_ONLY = {"gkm.io/cache-mode": "read-only"}
REQUIRED = READ_ONLY | {"gkm.io/cache-nodes": "required"}
TERMS = "requiredDuringSchedulingIgnoredDuringExecution"
IMAGE = "registry.test/team/x:1"


def reference(letter: str) -> str:
    return f"registry.test/team/x@sha256:{letter * 64}"


def verified(letter: str, *gpus: str, path: str = PATH, image: str = IMAGE) -> Json:
    """Return the status of a verified cache."""
    return {"image": image, "imageVolume": {"reference": reference(letter), "path": path, "gpus": gpus or ["sm_90"]}}


@dataclass
class Family:
    """Caches of one family in a cluster whose pods get image volumes."""

    word: str = "image"
    found: PodCaches = field(init=False)

    def __post_init__(self) -> None:
        self.found = PodCaches(Config(delivery=self.word))  # type: ignore[arg-type] # a word of the configuration

    def member(self, name: str, status: Json, runtime: str = "triton", **spec: object) -> "Family":
        self.found.verified(name, {"runtime": runtime, **status}, {"family": "llama", **spec})
        return self

    def review(self, annotations: Json = READ_ONLY, *containers: Json, **spec: Any) -> Answer:  # noqa: ANN401 -- JSON
        self.found.observe()
        return self.found.review(a_pod(*containers, annotations=annotations, **spec))


def volume(found: Answer) -> Json | None:
    made = [each for each in found.object["spec"].get("volumes", ()) if each["name"] == "gkm-cache"]
    return made[0] if made else None


def why(found: Answer) -> str:
    """Return why a pod got no volume; every field of its author is as it was."""
    assert volume(found) is None
    assert "affinity" not in found.object["spec"]
    assert found.allowed
    assert "starts without it" in found.warnings
    reason: str = report(found)["skipped"][-1]["why"]
    return reason


def required(pod: Json) -> list[Json]:
    terms: list[Json] = pod["spec"]["affinity"]["nodeAffinity"][TERMS]["nodeSelectorTerms"]
    return terms


def affinity(*terms: Json) -> Json:
    return {"nodeAffinity": {TERMS: {"nodeSelectorTerms": list(terms)}}}


def of(labels: Json, operator: str = "In") -> Json:
    """Return a term for these labels."""
    found = [{"key": key, "operator": operator, "values": [value]} for key, value in labels.items()]
    return {"matchExpressions": found}


def test_a_pod_of_these_gpus_gets_the_verified_digest_at_the_path_of_the_image() -> None:
    found = Family().member("llama", verified("a")).review(nodeSelector=H100)
    assert volume(found) == {
        "name": "gkm-cache",
        "image": {"reference": reference("a"), "pullPolicy": "IfNotPresent"},
    }
    (made,) = found.object["spec"]["containers"]
    assert made["volumeMounts"] == [{"name": "gkm-cache", "mountPath": PATH, "subPath": "io.triton.cache"}]
    assert made["env"] == [{"name": "TRITON_CACHE_DIR", "value": PATH}]
    assert "affinity" not in found.object["spec"]
    (injected,) = report(found)["caches"]
    assert injected.items() >= {"delivery": "image", "member": "llama", "image": reference("a"), "path": PATH}.items()


def test_each_of_several_caches_is_in_the_directory_of_its_runtime() -> None:
    found = Family().member("llama", verified("a"), "vllm-triton").review(nodeSelector=H100)
    (made,) = found.object["spec"]["containers"]
    assert [(each["mountPath"], each["subPath"]) for each in made["volumeMounts"]] == [
        (f"{PATH}/vllm", "io.vllm.cache"),
        (f"{PATH}/triton", "io.triton.cache"),
    ]


def test_the_member_of_the_gpus_that_the_pod_names_comes_first_in_the_order_of_the_family() -> None:
    family = Family().member("old", verified("a", "sm_80"), generation=9).member("new", verified("b"), generation=2)
    family.member("newer", verified("c"), generation=3)
    held = {"conditions": [{"type": "HeldBack", "status": "True"}]}
    family.member("held", verified("d") | held, generation=4)
    assert report(family.review(nodeSelector=H100))["caches"][0]["member"] == "newer"
    assert report(family.review(nodeSelector=A100))["caches"][0]["member"] == "old"
    family.member("pinned", verified("e"), pinned=True)
    assert report(family.review(affinity=affinity(of(H100))))["caches"][0]["member"] == "pinned"


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"affinity": affinity(of(H100), of({"zone": "a"}))},
        {"affinity": affinity(of(H100), of(A100))},
        {"affinity": affinity(of(H100, "NotIn"))},
        {"nodeSelector": {MAJOR: "9"}},
        {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}},
    ],
    ids=["no constraint", "one of two terms", "two GPUs", "not in", "no minor", "a product"],
)
def test_a_pod_that_may_start_on_other_gpus_gets_no_cache_and_learns_what_to_write(spec: Json) -> None:
    found = Family().member("llama", verified("a")).review(**spec)
    assert volume(found) is None
    assert found.object["spec"].get("affinity") == spec.get("affinity")
    said = report(found)["skipped"][-1]["why"]
    assert f"write nodeSelector '{MAJOR}': '9', '{MINOR}': '0'" in said
    assert "gkm.io/cache-nodes: required" in said


def test_a_pod_that_asks_for_nodes_gets_their_labels_in_each_of_its_terms() -> None:
    family = Family().member("llama", verified("a"))
    needs = [{"key": MAJOR, "operator": "In", "values": ["9"]}, {"key": MINOR, "operator": "In", "values": ["0"]}]
    found = family.review(REQUIRED)
    assert required(found.object) == [{"matchExpressions": needs}]
    assert report(found)["caches"][0]["nodes"] == "required"
    zones = family.review(REQUIRED, affinity=affinity(of({"zone": "a"}), of({"zone": "b"}), {}))
    zone = {"key": "zone", "operator": "In"}
    assert required(zones.object) == [
        {"matchExpressions": [zone | {"values": ["a"]}, *needs]},
        {"matchExpressions": [zone | {"values": ["b"]}, *needs]},
        {},
    ]


@pytest.mark.parametrize("annotations", [READ_ONLY, REQUIRED])
def test_no_pod_gets_a_cache_of_another_gpu(annotations: Json) -> None:
    reason = why(Family().member("llama", verified("a")).review(annotations, nodeSelector=A100))
    assert "the pod excludes the nodes that its verified caches are for" in reason


def test_members_for_several_gpus_leave_an_open_pod_without() -> None:
    family = Family().member("one", verified("a")).member("two", verified("b", "sm_80"))
    reason = why(family.review(REQUIRED))
    assert "several kinds of nodes" in reason
    assert f"'{MAJOR}': '9'" in reason
    assert f"'{MAJOR}': '8'" in reason


def test_a_cache_for_two_gpus_is_for_the_nodes_of_both() -> None:
    found = Family().member("llama", verified("a", "sm_80", "sm_90")).review(REQUIRED)
    assert required(found.object)[0]["matchExpressions"][0] == {"key": MAJOR, "operator": "In", "values": ["8", "9"]}


def test_two_lists_cannot_state_the_gpus_of_every_cache() -> None:
    # 8.0 and 12.0 are two kinds; 8.9 would be a third one, which {8, 12} x {0, 9} allows too.
    reason = why(Family().member("llama", verified("a", "sm_80", "sm_89", "sm_120")).review(nodeSelector=A100))
    assert "no label of nodes states sm_80, sm_89, sm_120" in reason


def test_a_cache_of_an_amd_gpu_is_for_the_nodes_that_its_author_names() -> None:
    labels = {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}
    assert "no label of nodes states gfx942" in why(Family().member("llama", verified("a", "gfx942")).review())
    named = Family().member("llama", verified("a", "gfx942"), nodeSelector=labels)
    assert volume(named.review(nodeSelector=labels)) is not None
    assert "excludes" in why(named.review(nodeSelector={"amd.com/gpu.product-name": "AMD_Instinct_MI210"}))


def test_the_node_selector_of_a_cache_binds_its_pods() -> None:
    family = Family().member("llama", verified("a"), nodeSelector={"pool": "prod"})
    assert "write nodeSelector" in why(family.review(nodeSelector=H100))
    assert volume(family.review(nodeSelector=H100 | {"pool": "prod"})) is not None


@pytest.mark.parametrize(
    ("status", "runtime", "reason"),
    [
        ({"image": IMAGE}, "triton", "it is not verified, or was not built with gkm cache build --for-path"),
        (verified("a", image="registry.test/team/x:0"), "triton", "it is not verified"),
        (verified("a"), "", "its runtime is not known"),
        (verified("a"), "flashinfer", "FlashInfer writes beside its kernels, and an image volume is read-only"),
    ],
    ids=["no verdict", "the verdict on another image", "no runtime", "a runtime that writes"],
)
def test_a_member_that_is_not_usable_says_why(status: Json, runtime: str, reason: str) -> None:
    assert reason in why(Family().member("llama", status, runtime).review(nodeSelector=H100))


def test_a_pod_without_a_member_starts_without() -> None:
    assert "no cache of this name was observed" in why(Family().review(nodeSelector=H100))


@pytest.mark.parametrize("annotations", [{}, {"gkm.io/cache-mode": "private"}])
def test_a_pod_that_wants_a_private_layer_gets_no_volume(annotations: Json) -> None:
    reason = why(Family().member("llama", verified("a")).review(annotations, nodeSelector=H100))
    assert "an image volume has no private layer: write gkm.io/cache-mode: read-only" in reason


def test_a_pod_that_sees_its_cache_at_another_path_gets_no_volume() -> None:
    family = Family().member("llama", verified("a"))
    moved = why(family.review(READ_ONLY | {"gkm.io/cache-path": "/cache"}, nodeSelector=H100))
    assert f"the pod mounts the cache at '/cache', and its image was built for '{PATH}'" in moved
    own = container(resources=GPU, env=[{"name": "TRITON_CACHE_DIR", "value": "/root/.triton/cache"}])
    assert "at '/root/.triton/cache'" in why(family.review(READ_ONLY, own, nodeSelector=H100))


def test_kubelet_gets_the_pull_secrets_of_the_namespace_of_the_pod() -> None:
    secrets = [{"name": "registry"}, {"name": "present"}]
    family = Family().member("llama", verified("a"), imagePullSecrets=secrets)
    found = family.review(nodeSelector=H100, imagePullSecrets=[{"name": "present"}])
    assert found.object["spec"]["imagePullSecrets"] == [{"name": "present"}, {"name": "registry"}]
    assert family.review(nodeSelector=H100).object["spec"]["imagePullSecrets"] == secrets


def test_the_secrets_of_a_cluster_cache_are_out_of_reach_of_kubelet() -> None:
    found = PodCaches(Config(delivery="image"))
    status = {"runtime": "triton", **verified("a")}
    found.verified("llama", status, {"imagePullSecrets": [{"name": "registry"}]}, None)
    found.observe()
    pod = a_pod(annotations=READ_ONLY, nodeSelector=H100, labels={"gkm.io/cluster-cache": "llama"})
    answer = found.review(pod)
    assert "imagePullSecrets" not in answer.object["spec"]
    assert "kubelet cannot read those of ClusterGKMCache llama: the pod needs its own" in answer.warnings
    assert [each["name"] for each in answer.object["spec"]["volumes"]] == ["gkm-cluster-cache"]


def test_a_cache_of_another_namespace_reaches_no_pod() -> None:
    found = PodCaches(Config(delivery="image"))
    found.verified("llama", {"runtime": "triton", **verified("a")}, {}, "other")
    found.observe()
    assert "no cache of this name was observed" in why(found.review(a_pod(annotations=READ_ONLY, nodeSelector=H100)))


def test_a_second_call_of_the_webhook_changes_nothing() -> None:
    family = Family().member("llama", verified("a"))
    once = family.review(REQUIRED)
    again = family.found.review(once.object)
    assert (again.changed, again.object) == (False, once.object)


def driver(api: Api) -> None:
    api.create(
        CSI_DRIVERS, {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "csi.gkm.io"}}
    )


def test_auto_follows_the_csidriver() -> None:
    family = Family("auto").member("llama", verified("a"))
    unknown = family.found
    unknown.observed._caches._list()
    early = unknown.review(a_pod(annotations=READ_ONLY, nodeSelector=H100))
    assert "it is not known yet whether nodes have the driver" in early.warnings
    assert "image" in (volume(family.review(nodeSelector=H100)) or {})
    driver(family.found.api)
    assert "csi" in (volume(family.review(nodeSelector=H100)) or {})


def test_the_word_csi_needs_no_look_at_the_driver() -> None:
    family = Family("csi").member("llama", verified("a"))
    assert "csi" in (volume(family.review(nodeSelector=H100)) or {})
    assert list(family.found.delivery.watches()) == []
    assert NAMESPACE in report(family.review(nodeSelector=H100))["caches"][0]["cache"]
