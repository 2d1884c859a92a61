"""Pods that name a cache by a label: which containers get it, on which nodes, and what of the user stays as it is."""

import copy
from dataclasses import replace

import pytest
from gkm.api.config import Config
from gkm.api.pod_caches import CACHE, CLUSTER_CACHE, INJECTED
from gkm_csi.volumes.request import CAPTURE_MODES, volume_options
from gkm_operator.admission.pods.decisions import MAX_ANNOTATION_BYTES
from support.grove.objects import NAMESPACE, Json
from support.operator.pod_caches import GPU, PodCaches, a_pod, attributes, container, pod_caches, report

PATH = "/var/cache/gkm/llama"
TRITON = {"name": "TRITON_CACHE_DIR", "value": PATH}
MOUNT = {"name": "gkm-cache", "mountPath": PATH}
EXPRESSION = {"key": f"cache.gkm.io/{NAMESPACE}.llama", "operator": "Exists"}
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERENCE = {"weight": 10, "preference": {"matchExpressions": [EXPRESSION]}}

USERS: dict[str, Json] = {
    "no affinity": {},
    "null": {"affinity": None},
    "an empty one": {"affinity": {}},
    "of pods": {"affinity": {"podAffinity": {PREFERRED: []}}},
    "of nodes, empty": {"affinity": {"nodeAffinity": {}}},
    "of nodes, null": {"affinity": {"nodeAffinity": None}},
    "preferred": {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": {"matchFields": []}}]}}},
    "required": {
        "affinity": {
            "nodeAffinity": {
                REQUIRED: {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
                        {},
                    ]
                }
            }
        }
    },
}


def test_a_pod_gets_volume_mount_variable_affinity_and_a_report() -> None:
    found = pod_caches("llama").review(a_pod())
    spec = found.object["spec"]
    assert (found.allowed, found.warnings) == (True, "")
    assert attributes(found.object) == {
        "cacheName": "llama",
        "mountPath": PATH,
        "readOnly": "false",
        "ifUnavailable": "empty",
    }
    assert spec["containers"] == [container(resources=GPU, env=[TRITON], volumeMounts=[MOUNT])]
    assert spec["affinity"] == {"nodeAffinity": {PREFERRED: [PREFERENCE]}}
    assert report(found) == {
        "caches": [
            {
                "cache": f"GKMCache {NAMESPACE}/llama",
                "volume": "gkm-cache",
                "path": PATH,
                "containers": ["main"],
                "environment": ["TRITON_CACHE_DIR"],
                "nodes": "preferred",
            }
        ]
    }


@pytest.mark.parametrize(("host_users", "expected"), [(False, "true"), (True, None), (None, None)])
def test_a_pod_in_a_user_namespace_gets_a_volume_whose_ids_can_be_mapped(
    host_users: bool | None,  # noqa: FBT001 -- a value of the field
    expected: str | None,
) -> None:
    found = pod_caches("llama").review(a_pod(hostUsers=host_users))
    assert attributes(found.object).get("userNamespace") == expected


def test_a_cache_that_was_not_observed_is_mounted_and_reported() -> None:
    found = pod_caches().review(a_pod())
    assert attributes(found.object)["cacheName"] == "llama"
    (skipped,) = report(found)["skipped"]
    assert "was not observed yet" in skipped["why"]
    assert "was not observed yet" in found.warnings


@pytest.mark.parametrize("change", ["none", "a container of another webhook"])
def test_a_second_call_changes_nothing(change: str) -> None:
    site = pod_caches("llama")
    given = site.review(a_pod()).object
    if change != "none":
        given["spec"]["containers"].append(container("side", resources=GPU))
    found = site.review(given)
    assert (found.allowed, found.changed, found.warnings) == (True, False, "")


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        ({}, {"readOnly": "false", "ifUnavailable": "empty"}),
        ({"gkm.io/cache-mode": "read-only"}, {"readOnly": "true", "ifUnavailable": "wait"}),
        (
            {"gkm.io/cache-mode": "read-only", "gkm.io/cache-if-unavailable": "empty"},
            {"readOnly": "true", "ifUnavailable": "empty"},
        ),
        ({"gkm.io/cache-nodes": "required"}, {"readOnly": "false", "ifUnavailable": "wait"}),
        ({"gkm.io/cache-if-unavailable": "wait"}, {"readOnly": "false", "ifUnavailable": "wait"}),
        (
            {"gkm.io/cache-nodes": "required", "gkm.io/cache-if-unavailable": "empty"},
            {"readOnly": "false", "ifUnavailable": "empty"},
        ),
    ],
)
def test_annotations_choose_the_layer_and_whether_the_pod_waits(wishes: Json, expected: Json) -> None:
    found = pod_caches("llama").review(a_pod(annotations=wishes))
    given = attributes(found.object)
    assert given == {"cacheName": "llama", "mountPath": PATH} | expected
    # The driver's mode of capture has other defaults; the wishes of a pod are the same in each.
    options = {replace(volume_options(given, mode), capture=False) for mode in CAPTURE_MODES}
    assert len(options) == 1


def test_a_runtime_that_writes_at_each_hit_gets_its_private_layer_also_against_the_annotation() -> None:
    asked = a_pod(annotations={"gkm.io/cache-mode": "read-only"})
    found = pod_caches("llama", runtime="flashinfer").review(asked)
    assert attributes(found.object) == {
        "cacheName": "llama",
        "mountPath": PATH,
        "readOnly": "false",
        "ifUnavailable": "wait",
    }
    assert "FlashInfer writes beside its kernels" in found.warnings
    found = pod_caches("llama", runtime="cutedsl").review(asked)
    expected = {"cacheName": "llama", "mountPath": PATH, "readOnly": "true", "ifUnavailable": "wait"}
    assert (attributes(found.object), found.warnings) == (expected, "")


def test_the_path_of_the_annotation_is_in_all_three_places() -> None:
    found = pod_caches("llama").review(a_pod(annotations={"gkm.io/cache-path": "/opt/kernels"}))
    (made,) = found.object["spec"]["containers"]
    assert attributes(found.object)["mountPath"] == "/opt/kernels"
    assert made["volumeMounts"] == [{"name": "gkm-cache", "mountPath": "/opt/kernels"}]
    assert made["env"] == [{"name": "TRITON_CACHE_DIR", "value": "/opt/kernels"}]


def test_the_variable_of_the_user_decides_where_the_cache_is() -> None:
    own = [{"name": "TRITON_CACHE_DIR", "value": "/opt/triton"}]
    found = pod_caches("llama").review(a_pod(container(resources=GPU, env=own)))
    (made,) = found.object["spec"]["containers"]
    assert made["env"] == own
    assert made["volumeMounts"] == [{"name": "gkm-cache", "mountPath": "/opt/triton"}]
    assert attributes(found.object)["mountPath"] == "/opt/triton"
    assert "skipped" not in report(found)


@pytest.mark.parametrize(
    "variable",
    [
        {"name": "TRITON_CACHE_DIR", "value": "$(HOME)/.triton"},
        {"name": "TRITON_CACHE_DIR", "value": "relative"},
        {"name": "TRITON_CACHE_DIR", "value": ""},
        {"name": "TRITON_CACHE_DIR"},
        {"name": "TRITON_CACHE_DIR", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ],
)
def test_a_variable_that_states_no_path_stays_and_is_reported(variable: Json) -> None:
    found = pod_caches("llama").review(a_pod(container(resources=GPU, env=[variable])))
    assert found.object["spec"]["containers"][0]["env"] == [variable]
    assert attributes(found.object)["mountPath"] == PATH
    assert report(found)["skipped"][0]["what"] == "TRITON_CACHE_DIR"


@pytest.mark.parametrize(
    "at", [PATH, f"{PATH}/", f"{PATH}/sub", "/var/cache", "/var/cache/gkm/", "/", "//var/cache", "var/cache/gkm/llama"]
)
def test_a_mount_of_the_user_at_the_path_stays_and_the_container_is_left_alone(at: str) -> None:
    own = container(resources=GPU, volumeMounts=[{"name": "data", "mountPath": at}])
    found = pod_caches("llama").review(a_pod(own, volumes=[{"name": "data", "emptyDir": {}}]))
    assert found.object["spec"]["containers"] == [own]
    assert found.object["spec"]["volumes"] == [{"name": "data", "emptyDir": {}}]
    assert "affinity" not in found.object["spec"]
    assert "overlaps" in report(found)["skipped"][0]["why"]


def test_a_mount_beside_the_path_does_not_matter() -> None:
    own = container(resources=GPU, volumeMounts=[{"name": "data", "mountPath": f"{PATH}-2"}])
    found = pod_caches("llama").review(a_pod(own, volumes=[{"name": "data", "emptyDir": {}}]))
    assert found.object["spec"]["containers"][0]["volumeMounts"] == [*own["volumeMounts"], MOUNT]


@pytest.mark.parametrize(
    "csi",
    [
        {"cacheName": "llama"},
        {"csi.gkm.io/GKMCache": "llama", "csi.gkm.io/namespace": NAMESPACE},
    ],
)
def test_a_pod_with_a_volume_of_the_cache_is_left_alone(csi: Json) -> None:
    volumes = [{"name": "kernels", "csi": {"driver": "csi.gkm.io", "volumeAttributes": csi}}]
    given = a_pod(volumes=volumes)
    found = pod_caches("llama").review(copy.deepcopy(given))
    assert found.object["spec"] == given["spec"]
    assert "the pod has volume 'kernels' of it" in report(found)["skipped"][0]["why"]


@pytest.mark.parametrize(
    "volume",
    [
        {"name": "kernels", "csi": {"driver": "csi.gkm.io", "volumeAttributes": {"cacheName": "other"}}},
        {"name": "kernels", "csi": {"driver": "csi.gkm.io", "volumeAttributes": {"clusterCacheName": "llama"}}},
        {"name": "kernels", "csi": {"driver": "csi.example", "volumeAttributes": {"cacheName": "llama"}}},
        {"name": "kernels", "csi": {"driver": "csi.gkm.io"}},
    ],
)
def test_a_volume_of_something_else_does_not_matter(volume: Json) -> None:
    found = pod_caches("llama").review(a_pod(volumes=[volume]))
    assert [each["name"] for each in found.object["spec"]["volumes"]] == ["kernels", "gkm-cache"]


def test_a_volume_of_the_user_with_our_name_stays_and_nothing_is_added() -> None:
    given = a_pod(volumes=[{"name": "gkm-cache", "emptyDir": {}}])
    found = pod_caches("llama").review(copy.deepcopy(given))
    assert found.object["spec"] == given["spec"]
    assert "another volume gkm-cache" in report(found)["skipped"][0]["why"]


def test_two_caches_of_different_runtimes_go_into_one_container() -> None:
    site = pod_caches("llama")
    site.declare("shared", "vllm", None)
    site.observe()
    found = site.review(a_pod(labels={CACHE: "llama", CLUSTER_CACHE: "shared"}))
    (made,) = found.object["spec"]["containers"]
    assert made["env"] == [TRITON, {"name": "VLLM_CACHE_ROOT", "value": "/var/cache/gkm/shared"}]
    assert attributes(found.object, "gkm-cluster-cache")["clusterCacheName"] == "shared"
    preferred = found.object["spec"]["affinity"]["nodeAffinity"][PREFERRED]
    keys = [each["preference"]["matchExpressions"][0]["key"] for each in preferred]
    assert keys == [EXPRESSION["key"], "cache.gkm.io/cluster_scoped.shared"]


def test_two_caches_of_one_name_do_not_get_one_path() -> None:
    site = pod_caches("llama")
    site.declare("llama", "vllm", None)
    site.observe()
    found = site.review(a_pod(labels={CACHE: "llama", CLUSTER_CACHE: "llama"}))
    assert [each["name"] for each in found.object["spec"]["volumes"]] == ["gkm-cache"]
    assert "overlaps" in report(found)["skipped"][0]["why"]


def test_the_default_of_a_namespace_is_for_its_pods_without_a_label() -> None:
    site = PodCaches()
    site.declare("llama")
    site.default("llama")
    site.observe()
    assert attributes(site.review(a_pod(labels={})).object)["cacheName"] == "llama"
    for labels in ({CACHE: ""}, {CLUSTER_CACHE: ""}):
        assert not site.review(a_pod(labels=labels)).changed
    other = site.review(a_pod(labels={}), namespace="another")
    assert not other.changed


def test_a_pod_gets_caches_of_its_own_namespace_only() -> None:
    site = pod_caches()
    site.declare("llama", "vllm", "another")
    site.observe()
    found = site.review(a_pod())
    assert "cacheNamespace" not in attributes(found.object)
    assert "was not observed yet" in found.warnings


@pytest.mark.parametrize("value", ["../x", "a/b", "A", "a~1b", "-", "a" * 300, "\u202e", "a\nb", "another.ns/llama"])
def test_an_odd_label_is_reported_and_the_pod_is_admitted(value: str) -> None:
    given = a_pod(labels={CACHE: value})
    found = pod_caches("llama").review(copy.deepcopy(given))
    assert (found.allowed, found.object["spec"]) == (True, given["spec"])
    assert report(found)["skipped"][0]["what"] == CACHE


@pytest.mark.parametrize(
    "wishes",
    [
        {"gkm.io/cache-mode": "rw"},
        {"gkm.io/cache-path": "relative"},
        {"gkm.io/cache-path": "/a/../../b"},
        {"gkm.io/cache-nodes": ""},
        {"gkm.io/cache-if-unavailable": "x" * 100_000},
    ],
)
def test_an_odd_wish_is_reported_and_the_default_is_used(wishes: Json) -> None:
    found = pod_caches("llama").review(a_pod(annotations=wishes))
    usual = pod_caches("llama").review(a_pod())
    assert found.object["spec"] == usual.object["spec"]
    assert report(found)["skipped"][0]["what"] in wishes
    assert len(found.annotations[INJECTED]) < 4096


@pytest.mark.parametrize("operation", ["UPDATE", "DELETE"])
def test_only_new_pods_are_changed(operation: str) -> None:
    assert not pod_caches("llama").review(a_pod(), operation=operation, oldObject=a_pod()).changed


def test_annotations_of_others_stay_and_a_copied_report_is_replaced() -> None:
    others = {"a~b/c": "x", INJECTED: "copied from another pod"}
    found = pod_caches("llama").review(a_pod(annotations=others))
    assert found.annotations["a~b/c"] == "x"
    assert report(found)["caches"][0]["volume"] == "gkm-cache"


@pytest.mark.parametrize("path", [PATH, f"{PATH}/", f"{PATH}/deep", "/var/cache", "/"])
def test_a_container_with_a_block_device_at_the_path_gets_nothing(path: str) -> None:
    """The API server refuses a mount at the path of a device; one around it would hide the device."""
    devices = [{"name": "block", "devicePath": path}]
    pod = a_pod(container(resources=GPU, volumeDevices=devices), container("other", resources=GPU))
    found = pod_caches("llama").review(pod)
    assert "mount or device" in found.warnings
    assert found.object["spec"]["containers"][0] == pod["spec"]["containers"][0]
    assert found.object["spec"]["containers"][1]["volumeMounts"] == [MOUNT]


@pytest.mark.parametrize("earlier", ["", "{}"])
def test_a_report_that_fills_the_annotations_is_written_and_one_byte_more_leaves_the_pod_as_it_is(earlier: str) -> None:
    made = {INJECTED: earlier} if earlier else {}
    needed = len(INJECTED) + len(pod_caches("llama").review(a_pod(annotations=dict(made))).annotations[INJECTED])
    for room, fits in ((needed, True), (needed - 1, False)):
        # Two bytes of UTF-8 for each character, and a key of one.
        filled, odd = divmod(MAX_ANNOTATION_BYTES - room - 1, 2)
        pod = a_pod(annotations=made | {"k": "é" * filled + "x" * odd})
        found = pod_caches("llama").review(pod)
        assert found.changed == fits
        assert ("its annotations leave 1 bytes too few" in found.warnings) != fits


def test_a_pod_near_the_size_that_etcd_stores_stays_as_it_is() -> None:
    for size, fits in (((1 << 20) - 1000, True), (1 << 20, False)):
        pod = a_pod(container(resources=GPU, env=[{"name": "A", "value": "x" * size}]))
        found = pod_caches("llama").review(pod)
        assert found.allowed
        assert found.changed == fits
        assert ("more than 1 MiB" in found.warnings) != fits


def mounting(pod: Json) -> list[str]:
    return [each["name"] for each in pod["spec"]["containers"] if "volumeMounts" in each]


@pytest.mark.parametrize(
    ("containers", "wishes", "expected"),
    [
        ([container("a"), container("b", resources=GPU), container("c", resources=GPU)], {}, ["b", "c"]),
        ([container("a"), container("b")], {}, ["a"]),
        ([container("mesh"), container("kserve-container")], {}, ["kserve-container"]),
        ([container("a"), container("b", resources={"claims": [{"name": "gpu"}]})], {}, ["b"]),
        ([container("a", resources=GPU), container("b")], {"gkm.io/cache-container": "b"}, ["b"]),
        ([container("a", resources=GPU), container("b")], {"gkm.io/cache-container": "c"}, []),
        ([container(f"c{n}", resources=GPU) for n in range(20)], {}, [f"c{n}" for n in range(16)]),
    ],
)
def test_containers_that_request_gpus_or_the_named_or_the_main_one_get_the_cache(
    containers: list[Json], wishes: Json, expected: list[str]
) -> None:
    claims = [{"name": "gpu", "resourceClaimTemplateName": "x"}]
    found = pod_caches("llama").review(a_pod(*containers, annotations=wishes, resourceClaims=claims))
    assert mounting(found.object) == expected
    assert [each["name"] for each in found.object["spec"].get("volumes", ())] == (["gkm-cache"] if expected else [])


def test_init_containers_stay_as_they_are() -> None:
    init = [container("fetch", resources=GPU)]
    found = pod_caches("llama").review(a_pod(initContainers=init))
    assert found.object["spec"]["initContainers"] == init
    assert mounting(found.object) == ["main"]


@pytest.mark.parametrize("nodes", ["preferred", "required"])
@pytest.mark.parametrize("given", USERS.values(), ids=USERS)
def test_the_affinity_of_the_user_is_only_added_to(nodes: str, given: Json) -> None:
    site = pod_caches("llama")
    found = site.review(a_pod(annotations={"gkm.io/cache-nodes": nodes}, **copy.deepcopy(given)))
    expected = copy.deepcopy(given.get("affinity") or {})
    terms = expected["nodeAffinity"] = expected.get("nodeAffinity") or {}
    if nodes == "preferred":
        terms[PREFERRED] = [*terms.get(PREFERRED, ()), PREFERENCE]
    elif REQUIRED in terms:
        first, second, _ = terms[REQUIRED]["nodeSelectorTerms"]
        first["matchExpressions"].append(EXPRESSION)
        second["matchExpressions"] = [EXPRESSION]
    else:
        terms[REQUIRED] = {"nodeSelectorTerms": [{"matchExpressions": [EXPRESSION]}]}
    assert found.object["spec"]["affinity"] == expected


def test_an_expression_of_the_user_is_not_repeated() -> None:
    given = {
        "nodeAffinity": {PREFERRED: [PREFERENCE], REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [EXPRESSION]}]}}
    }
    for nodes in ("preferred", "required"):
        wishes = {"gkm.io/cache-nodes": nodes}
        found = pod_caches("llama").review(a_pod(annotations=wishes, affinity=copy.deepcopy(given)))
        assert found.object["spec"]["affinity"] == given


@pytest.mark.parametrize("nodes", ["preferred", "required"])
def test_without_labels_of_nodes_there_is_no_affinity(nodes: str) -> None:
    found = pod_caches("llama", config=Config()).review(a_pod(annotations={"gkm.io/cache-nodes": nodes}))
    assert "affinity" not in found.object["spec"]
    assert ("fabric.cacheLabels" in found.warnings) == (nodes == "required")


def test_a_name_that_no_label_of_nodes_can_have_gets_no_affinity() -> None:
    name = "a" * 63
    found = pod_caches(name).review(a_pod(labels={CACHE: name}, annotations={"gkm.io/cache-nodes": "required"}))
    assert "affinity" not in found.object["spec"]
    assert "too many characters" in found.warnings
