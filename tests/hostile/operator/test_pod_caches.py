"""Hostile pods with cache labels: every one is admitted, what its author wrote stays, and the patch is bounded."""

import copy
import json
from typing import Any

import msgspec
import pytest
from gkm.api.pod_caches import ANNOTATIONS, CACHE, CLUSTER_CACHE, INJECTED
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.grove.objects import NAMESPACE, Json
from support.operator.pod_caches import GPU, KIND, a_pod, container, pod_caches, report
from support.operator.workloads import Answer, review_of

MANY = 100_000
MAX_PATCH = 32 << 10
"""Bytes of what a pod may get, as base64 in the response."""
SITE = pod_caches("llama", "qwen")


def reviewed(pod: Json) -> tuple[Answer, int]:
    """Return the answer, and the bytes of the response."""
    body = review_of(KIND, pod)
    size = len(SITE.reviewer(lambda: body, lambda: None))
    return SITE.review(pod), size


MANY_OF: dict[str, Json] = {
    "volumes": a_pod(volumes=[{"name": f"v{n}", "emptyDir": {}} for n in range(MANY)]),
    "containers": a_pod(*[container(f"c{n}") for n in range(MANY // 2)]),
    "labels": a_pod(labels={CACHE: "llama"} | {f"l{n}": "" for n in range(MANY)}),
    "annotations": a_pod(annotations={f"a{n}": "" for n in range(MANY)}),
    "variables": a_pod(container(resources=GPU, env=[{"name": f"E{n}"} for n in range(MANY)])),
    "mounts": a_pod(container(resources=GPU, volumeMounts=[{"name": "v", "mountPath": f"/{n}"} for n in range(MANY)])),
    "a huge annotation": a_pod(annotations={"gkm.io/cache-path": "/" + "a" * (2 << 20)}),
    "a huge report": a_pod(annotations={INJECTED: "[" * (2 << 20)}),
    "a huge name": a_pod(container("n" * (2 << 20), resources=GPU)),
    "a huge mount": a_pod(
        container(resources=GPU, volumeMounts=[{"name": "v", "mountPath": "/var/cache/gkm/llama/" + "a" * (2 << 20)}])
    ),
    "a huge variable": a_pod(container(resources=GPU, env=[{"name": "TRITON_CACHE_DIR", "value": "x" * (2 << 20)}])),
    "a huge label": a_pod(labels={CACHE: "a" * (2 << 20)}),
    "the most containers": a_pod(
        *[container(f"c{n}", resources=GPU, volumeMounts=[{"name": "v", "mountPath": "/var"}]) for n in range(1024)]
    ),
    "deep": a_pod(
        volumes=[
            {
                "name": "x",
                "csi": {"driver": "d", "volumeAttributes": {"a": "b"}, "x": json.loads("[" * 100 + "]" * 100)},
            }
        ]
    ),
}


@pytest.mark.parametrize("name", MANY_OF)
def test_a_pod_with_far_too_much_is_admitted_and_its_patch_is_small(name: str) -> None:
    answer, size = reviewed(MANY_OF[name])
    assert answer.allowed
    assert size < MAX_PATCH
    assert len(answer.annotations.get(INJECTED, "")) < MAX_PATCH or not answer.changed


TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ["llama", "qwen", "gkm-cache", "/var/cache/gkm/llama", "/", "~0~1", "a/b", "csi.gkm.io", "", "..", "\ud800"]
    ),
)
VARIABLES = st.fixed_dictionaries(
    {"name": st.one_of(TEXTS, st.sampled_from(["TRITON_CACHE_DIR", "VLLM_CACHE_ROOT"]))}, optional={"value": TEXTS}
)
MOUNTS = st.fixed_dictionaries({"name": TEXTS, "mountPath": TEXTS})
CSI = st.fixed_dictionaries(
    {"driver": TEXTS},
    optional={
        "volumeAttributes": st.dictionaries(
            st.one_of(TEXTS, st.sampled_from(["cacheName", "clusterCacheName"])), TEXTS, max_size=3
        )
    },
)
VOLUMES = st.fixed_dictionaries({"name": TEXTS}, optional={"csi": st.one_of(st.none(), CSI)})
CONTAINERS = st.fixed_dictionaries(
    {"name": TEXTS},
    optional={
        "env": st.one_of(st.none(), st.lists(VARIABLES, max_size=3)),
        "volumeMounts": st.one_of(st.none(), st.lists(MOUNTS, max_size=3)),
        "resources": st.sampled_from([{}, GPU, {"claims": [{"name": "x"}]}]),
    },
)
EXPRESSIONS = st.fixed_dictionaries({"key": TEXTS, "operator": st.sampled_from(["In", "Exists"])})
TERMS = st.fixed_dictionaries(
    {},
    optional={"matchExpressions": st.lists(EXPRESSIONS, max_size=2), "matchFields": st.lists(EXPRESSIONS, max_size=1)},
)
NODES = st.fixed_dictionaries(
    {},
    optional={
        "requiredDuringSchedulingIgnoredDuringExecution": st.fixed_dictionaries(
            {"nodeSelectorTerms": st.lists(TERMS, max_size=3)}
        ),
        "preferredDuringSchedulingIgnoredDuringExecution": st.lists(
            st.fixed_dictionaries({"weight": st.just(1), "preference": TERMS}), max_size=2
        ),
    },
)
PODS = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {
                "namespace": st.just(NAMESPACE),
                "labels": st.dictionaries(st.sampled_from([CACHE, CLUSTER_CACHE]), TEXTS),
            },
            optional={
                "annotations": st.dictionaries(
                    st.one_of(TEXTS, st.sampled_from(sorted(ANNOTATIONS))),
                    st.one_of(TEXTS, st.sampled_from(["required", "read-only", "empty", "wait"])),
                    max_size=4,
                )
            },
        ),
        "spec": st.fixed_dictionaries(
            {"containers": st.lists(CONTAINERS, max_size=3)},
            optional={
                "volumes": st.one_of(st.none(), st.lists(VOLUMES, max_size=3)),
                "affinity": st.one_of(
                    st.none(), st.fixed_dictionaries({}, optional={"nodeAffinity": st.one_of(st.none(), NODES)})
                ),
            },
        ),
    }
)


def contains(whole: Any, part: Any) -> bool:  # noqa: ANN401 -- any JSON
    """Return whether `whole` is `part` with entries added: to maps, and at the ends of lists; None is nothing."""
    if part is None:
        return True
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            key in whole and contains(whole[key], value) for key, value in part.items()
        )
    if isinstance(part, list):
        return isinstance(whole, list) and len(whole) >= len(part) and all(map(contains, whole, part))
    return bool(whole == part)


@settings(max_examples=examples(400))
@given(PODS)
def test_nothing_of_the_user_is_changed_and_a_second_call_adds_nothing(pod: Json) -> None:
    given_pod = copy.deepcopy(pod)
    given_pod["metadata"].get("annotations", {}).pop(INJECTED, None)
    try:
        json.dumps(pod, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return  # no API server sends it
    found = SITE.review(pod)
    assert found.allowed
    assert contains(found.object, given_pod)
    if found.changed:
        report(found)
        again = SITE.review(copy.deepcopy(found.object))
        assert again.object["spec"] == found.object["spec"]


@settings(max_examples=examples(200))
@given(PODS)
def test_every_added_volume_is_of_the_own_namespace_and_every_mount_has_its_volume(pod: Json) -> None:
    try:
        json.dumps(pod, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return
    before = len(pod["spec"].get("volumes") or ())
    found = SITE.review(pod)
    for volume in (found.object["spec"].get("volumes") or ())[before:]:
        attributes = volume["csi"]["volumeAttributes"]
        assert not {"cacheNamespace", "csi.gkm.io/namespace", "csi.gkm.io/GKMCache"} & attributes.keys()
        assert any(
            volume["name"] == mount["name"] and mount["mountPath"] == attributes["mountPath"]
            for each in found.object["spec"]["containers"]
            for mount in each.get("volumeMounts") or ()
        )


@settings(max_examples=examples(300))
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | TEXTS,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["metadata", "spec", "labels", "containers", "volumes", "affinity", "env", CACHE]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_json_of_any_shape_refuses_no_pod(value: Any) -> None:  # noqa: ANN401 -- any JSON
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return
    body = json.loads(review_of(KIND, a_pod()))
    body["request"]["object"] = value
    sent = json.dumps(body).encode()
    answer = msgspec.json.decode(SITE.reviewer(lambda: sent, lambda: None))
    assert answer["response"]["allowed"]
