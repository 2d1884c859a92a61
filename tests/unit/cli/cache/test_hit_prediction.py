"""What a pod will key on beside what a cache was keyed on: a difference proves a miss, and nothing else is proved."""

from dataclasses import replace
from typing import Any

import pytest
from gkm.api.targets import GpuTarget
from gkm.gpus import preflight
from gkm.gpus.values import Gpu
from gkm.runtimes import INDUCTOR, TRITON, VLLM, Runtime
from gkm.runtimes.keys import same_value
from gkm_cli.cache.explain import CacheFacts, Comparison, FactorResult, compare, first
from gkm_cli.inputs.pods import PodSpecFacts
from msgspec import convert

ENV: dict[str, object] = {"VLLM_NIXL_SIDE_CHANNEL_PORT": 5600, "VLLM_USE_V1": True, "VLLM_ATTENTION_BACKEND": None}


def pod(env: list[dict[str, Any]] | None = None, *, path: str | None = "/cache", **container: Any) -> PodSpecFacts:  # noqa: ANN401 -- fields of a pod
    attributes = {"cacheName": "llama", **({"mountPath": path} if path else {})}
    server = {
        "name": "server",
        "image": "docker.io/vllm/vllm-openai:v0.33.0",
        "volumeMounts": [{"name": "kernels", "mountPath": "/cache"}],
        "env": [{"name": "VLLM_CACHE_ROOT", "value": "/cache/vllm"}, *(env or [])],
    }
    volume = {"name": "kernels", "csi": {"driver": "csi.gkm.io", "volumeAttributes": attributes}}
    sidecar = {"name": "sidecar", "env": [{"name": "VLLM_USE_V1", "value": "0"}]}
    return convert({"volumes": [volume], "containers": [sidecar, server | container]}, PodSpecFacts)


def cache(runtime: Runtime = VLLM, *environments: dict[str, object], **versions: str) -> CacheFacts:
    return CacheFacts(runtime, versions or {"vllm": "0.33.0"}, environments or (ENV,))


def found(facts: CacheFacts, spec: PodSpecFacts) -> FactorResult:
    result = first(compare(facts, spec))
    assert result is not None
    return result


def variable(value: str, name: str = "VLLM_NIXL_SIDE_CHANNEL_PORT") -> list[dict[str, Any]]:
    return [{"name": name, "value": value}]


@pytest.mark.parametrize(
    ("spec", "factor", "mounted", "given"),
    [
        (pod(variable("20097")), "VLLM_NIXL_SIDE_CHANNEL_PORT", "5600", "20097"),
        (pod(variable("0", "VLLM_USE_V1")), "VLLM_USE_V1", "True", "0"),
        (pod(variable("FLASHINFER", "VLLM_ATTENTION_BACKEND")), "VLLM_ATTENTION_BACKEND", "none", "FLASHINFER"),
        (pod(image="vllm/vllm-openai:v0.32.1"), "version of vLLM", "0.33.0", "0.32.1"),
        (pod(path="/elsewhere"), "mount path", "mountPath /elsewhere", "/cache"),
        (pod([{"name": "VLLM_CACHE_ROOT", "value": "/root"}]), "mount path", "/cache", "VLLM_CACHE_ROOT=/root"),
    ],
)
def test_a_factor_that_differs_is_a_miss(spec: PodSpecFacts, factor: str, mounted: str, given: str) -> None:
    assert found(cache(), spec) == FactorResult("server", factor, Comparison.OTHER, mounted, given, runtime="vllm")


def test_among_several_caches_each_has_its_own_directory() -> None:
    right = replace(cache(), directory="vllm")
    assert first([each for each in compare(right, pod(variable("5600"))) if each.factor == "mount path"]) is None
    wrong = found(replace(cache(), directory="triton"), pod(variable("5600")))
    assert (wrong.factor, wrong.result, wrong.cache) == ("mount path", Comparison.OTHER, "/cache/triton")


def test_of_several_differences_the_first_one_counts() -> None:
    spec = pod(variable("20097"), image="vllm/vllm-openai:v0.32.1")
    assert found(cache(), spec).factor == "version of vLLM"


@pytest.mark.parametrize(
    "spec",
    [
        pod(),
        pod(variable("5600")),
        pod(variable("2", "VLLM_USE_V1")),
        pod(variable("$(PORT)")),
        pod([{"name": "VLLM_NIXL_SIDE_CHANNEL_PORT", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}]),
        # vLLM ignores it, or does not know it: no file of factors has it.
        pod(variable("/x", "VLLM_LOGGING_CONFIG_PATH")),
        # Of two with one name the last one counts.
        pod([*variable("20097"), *variable("5600")]),
    ],
)
def test_equal_and_unknown_factors_never_prove_a_hit(spec: PodSpecFacts) -> None:
    facts = cache()
    assert found(facts, spec).result is Comparison.NOT_KNOWN
    assert compare(facts, spec)[-1].why == VLLM.entries.unstated


def test_one_of_several_models_of_a_cache_is_enough() -> None:
    spec, other = pod(variable("5600")), ENV | {"VLLM_NIXL_SIDE_CHANNEL_PORT": 1}
    results = {each.factor: each for each in compare(cache(VLLM, other, ENV), spec)}
    assert results["VLLM_NIXL_SIDE_CHANNEL_PORT"].result is Comparison.EQUAL


def test_a_container_without_the_volume_counts_only_where_none_has_it() -> None:
    assert {each.container for each in compare(cache(), pod())} == {"server"}
    assert {each.container for each in compare(cache(), pod(volumeMounts=[]))} == {"sidecar", "server"}


def test_a_variable_that_triton_keys_on_wherever_it_is_set_differs_from_none() -> None:
    env = [{"name": "TRITON_CACHE_DIR", "value": "/cache"}, {"name": "TRITON_DEFAULT_FP_FUSION", "value": "0"}]
    assert found(cache(TRITON, {}), pod(env)) == FactorResult(
        "server", "TRITON_DEFAULT_FP_FUSION", Comparison.OTHER, "none", "0", runtime="triton"
    )
    same = found(cache(TRITON, {"TRITON_DEFAULT_FP_FUSION": "false"}), pod(env))
    assert same.result is Comparison.NOT_KNOWN


def test_a_cache_without_variables_says_so() -> None:
    results = compare(CacheFacts(INDUCTOR), pod())
    assert "the cache of TorchInductor states no variables" in [each.why for each in results]


@pytest.mark.parametrize(
    ("archs", "result"),
    [("9", Comparison.EQUAL), ("8", Comparison.OTHER), ("98", Comparison.NOT_KNOWN), ("?", Comparison.NOT_KNOWN)],
)
def test_gpus_that_the_user_names_are_compared(archs: str, result: Comparison) -> None:
    gpus = [
        Gpu(0, "cuda", arch=arch.replace("?", "") and f"{arch}0", warp_size=32, driver_version="580.65.06")
        for arch in archs
    ]
    verdicts = [preflight.check([GpuTarget("cuda", "90", 32)], [gpu]) for gpu in gpus]
    assert compare(CacheFacts(VLLM, gpus=verdicts), pod())[0].result is result


@pytest.mark.parametrize(
    ("stated", "text", "same"),
    [
        (5600, "5600", True),
        (5600, "5601", False),
        (5600, "auto", None),
        (1.5, "1.50", True),
        (True, "true", True),
        (False, "1", False),
        (True, "yes", None),
        ("true", "1", True),
        ("false", "1", False),
        ("cuda", "cuda", True),
        ("cuda", "CUDA", None),
        ("cuda", "rocm", False),
        ("/root/a", "~/a", None),
        (None, "x", False),
        (None, "", None),
        (["a"], "a", None),
    ],
)
def test_values_are_compared_as_runtimes_read_them(stated: object, text: str, same: bool | None) -> None:  # noqa: FBT001 -- the expected value
    assert same_value(stated, text) is same
