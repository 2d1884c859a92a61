"""Caches of a pod by their runtimes: which variables it gets, and what a family and the user's variables tell."""

import copy

import pytest
from gkm.api.pod_caches import CACHE, CLUSTER_CACHE
from gkm.kube.resources import GKMCACHES
from support.grove.objects import NAMESPACE, Json
from support.operator.pod_caches import GPU, PodCaches, a_pod, attributes, container, pod_caches, report
from support.operator.workloads import Answer, as_json

PATH = "/var/cache/gkm/llama"
TRITON = {"name": "TRITON_CACHE_DIR", "value": PATH}
VLLM = {"VLLM_CACHE_ROOT": PATH, "TRITON_CACHE_DIR": f"{PATH}/triton"}
SEVERAL = {"VLLM_CACHE_ROOT": f"{PATH}/vllm", "TRITON_CACHE_DIR": f"{PATH}/triton"}


def environment(found: Answer) -> dict[str, str]:
    return {each["name"]: each["value"] for each in found.object["spec"]["containers"][0].get("env", [])}


@pytest.mark.parametrize(
    ("runtime", "variables"),
    [
        ("triton", {"TRITON_CACHE_DIR": PATH}),
        ("inductor", {"TORCHINDUCTOR_CACHE_DIR": PATH}),
        ("vllm", VLLM),
        ("vllm-triton", SEVERAL),
        ("vllm-inductor", {**SEVERAL, "TORCHINDUCTOR_CACHE_DIR": f"{PATH}/inductor"}),
        ("", VLLM),
        ("other", VLLM),
    ],
)
def test_each_runtime_gets_a_directory_of_its_own(runtime: str, variables: dict[str, str]) -> None:
    """Unknown runtimes too: what two of them wrote into one directory would be no cache."""
    found = environment(pod_caches("llama", runtime=runtime).review(a_pod()))
    assert found == variables
    assert len(set(found.values())) == len(found)


@pytest.mark.parametrize(("runtime", "names"), [("vllm", {"VLLM_CACHE_ROOT"}), ("vllm-triton", set(SEVERAL))])
def test_a_read_only_volume_gets_no_variable_of_a_runtime_without_a_cache(runtime: str, names: set[str]) -> None:
    """Triton ends the program when it cannot make its directory."""
    pod = a_pod(annotations={"gkm.io/cache-mode": "read-only"})
    assert environment(pod_caches("llama", runtime=runtime).review(pod)).keys() == names


def test_a_private_layer_that_a_runtime_needs_also_serves_runtimes_without_a_cache() -> None:
    """The volume can be written to, so vLLM's own Triton kernels stay in it."""
    pod = a_pod(annotations={"gkm.io/cache-mode": "read-only"})
    found = pod_caches("llama", runtime="vllm-flashinfer").review(pod)
    assert attributes(found.object)["readOnly"] == "false"
    assert environment(found)["TRITON_CACHE_DIR"] == f"{PATH}/triton"


def test_the_variable_of_the_user_tells_the_runtime_while_it_is_unknown() -> None:
    own = [{"name": "TRITON_CACHE_DIR", "value": "/opt/triton"}]
    found = pod_caches("llama", runtime="").review(a_pod(container(resources=GPU, env=own)))
    assert environment(found) == {"TRITON_CACHE_DIR": "/opt/triton"}
    assert attributes(found.object)["mountPath"] == "/opt/triton"
    assert "the pod gets the variables of Triton" in report(found)["skipped"][0]["why"]


def test_the_directory_of_a_runtime_in_the_variable_of_the_user_tells_where_the_caches_are() -> None:
    own = [{"name": "TRITON_CACHE_DIR", "value": "/opt/kernels/triton"}]
    found = pod_caches("llama", runtime="vllm-triton").review(a_pod(container(resources=GPU, env=own)))
    assert environment(found) == {"TRITON_CACHE_DIR": "/opt/kernels/triton", "VLLM_CACHE_ROOT": "/opt/kernels/vllm"}
    assert attributes(found.object)["mountPath"] == "/opt/kernels"
    assert "skipped" not in report(found)


def test_a_variable_of_the_user_that_misses_its_cache_is_reported() -> None:
    own = [{"name": "VLLM_CACHE_ROOT", "value": "/cache"}]
    found = pod_caches("llama", runtime="vllm-triton").review(a_pod(container(resources=GPU, env=own)))
    (skipped,) = report(found)["skipped"]
    assert (skipped["what"], "the cache is at '/cache/vllm'" in skipped["why"]) == ("VLLM_CACHE_ROOT", True)


def test_a_further_directory_of_the_user_is_no_fault() -> None:
    own = [{"name": "TRITON_CACHE_DIR", "value": "/elsewhere"}]
    found = pod_caches("llama", runtime="vllm").review(a_pod(container(resources=GPU, env=own)))
    assert environment(found) == {"TRITON_CACHE_DIR": "/elsewhere", "VLLM_CACHE_ROOT": PATH}
    assert "skipped" not in report(found)


def test_a_second_cache_comes_before_the_further_directory_of_the_first() -> None:
    site = pod_caches("llama", runtime="vllm")
    site.declare("shared", "triton", None)
    site.observe()
    found = site.review(a_pod(labels={CACHE: "llama", CLUSTER_CACHE: "shared"}))
    assert environment(found) == {"VLLM_CACHE_ROOT": PATH, "TRITON_CACHE_DIR": "/var/cache/gkm/shared"}


def family(*members: Json, scope: str | None = NAMESPACE) -> PodCaches:
    """Return a cluster with members of the family `llama`, observed; the cache of that name is one by its name."""
    site = PodCaches()
    for number, member in enumerate(members):
        site.declare(member.pop("name", f"llama-{number}"), namespace=scope, **({"family": "llama"} | member))
    site.observe()
    return site


TRITON_AT, VLLM_AT = {"TRITON_CACHE_DIR"}, {"VLLM_CACHE_ROOT", "TRITON_CACHE_DIR"}


@pytest.mark.parametrize(
    ("members", "variables"),
    [
        pytest.param([{"runtime": "triton"}], TRITON_AT, id="a capture alone has the family"),
        pytest.param([{"runtime": "vllm"}, {"runtime": "triton", "generation": 1}], TRITON_AT, id="the newest"),
        pytest.param(
            [{"runtime": "triton", "pinned": True}, {"runtime": "vllm", "generation": 9}], TRITON_AT, id="pinned first"
        ),
        pytest.param([{"runtime": "triton"}, {"runtime": "", "generation": 2}], TRITON_AT, id="the newest is not read"),
        pytest.param(
            [{"name": "llama", "family": "", "runtime": "vllm"}, {"runtime": "triton", "generation": 1}],
            TRITON_AT,
            id="a generation comes before the cache of the name",
        ),
        pytest.param([{"runtime": "triton", "family": "other"}], VLLM_AT, id="another family says nothing"),
        pytest.param([{"runtime": "triton", "family": "../llama"}], VLLM_AT, id="a name that no volume can have"),
    ],
)
def test_the_members_of_a_family_tell_its_runtime(members: list[Json], variables: set[str]) -> None:
    assert set(environment(family(*copy.deepcopy(members)).review(a_pod()))) == variables


def test_members_of_another_scope_tell_nothing() -> None:
    found = family({"runtime": "triton"}, scope=None).review(a_pod())
    assert "was not observed yet" in found.warnings
    assert set(environment(found)) == VLLM_AT


def test_a_family_loses_its_runtime_with_its_last_member() -> None:
    site = family({"runtime": "triton"})
    site.api.delete(as_json(GKMCACHES), "llama-0", NAMESPACE)
    site.observe()
    assert "was not observed yet" in site.review(a_pod()).warnings
