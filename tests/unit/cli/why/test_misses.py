"""What `gkm why` says of the kernels that a program compiled beside its cache."""

import hashlib

import pytest
from gkm.api.nodes import GKMCacheNode
from gkm_cli.why import outcomes, programs
from gkm_cli.why.facts import CacheName, Facts, PodFacts, ReadResult
from msgspec import convert


def facts(*, uid: str = "u-1", misses: dict[str, object] | None = None) -> Facts:
    """A pod with a private volume, and a report about the volume `kernels` of the pod u-1."""
    csi = {"driver": "csi.gkm.io", "volumeAttributes": {"cacheName": "llama", "readOnly": "false"}}
    volume = {"name": "kernels", "csi": csi}
    pod = convert({"metadata": {"name": "p", "namespace": "a", "uid": uid}, "spec": {"volumes": [volume]}}, PodFacts)
    # kubernetes/pkg/volume/csi/csi_plugin.go, makeVolumeHandle
    handle = f"csi-{hashlib.sha256(b'u-1kernels').hexdigest()}"
    use = {"namespace": "a", "name": "p", "volumeId": handle, "digest": f"sha256:{'0' * 64}"}
    caches = {"llama": {"state": "Ready", "pods": [use | ({"misses": misses} if misses else {})]}}
    made = {"kind": "GKMCacheNode", "metadata": {"name": "n", "namespace": "a"}, "spec": {"nodeName": "n"}}
    node = convert(made | {"status": {"caches": caches}}, GKMCacheNode)
    assert pod.spec.volumes
    return Facts(pod=pod, volume=pod.spec.volumes[0], cache_name=CacheName("a", "llama"), node=ReadResult(node))


def test_misses_have_their_reasons_and_bound_the_hits() -> None:
    misses = {"kernels": 3, "mountedKernels": 9, "reasons": {"OtherOptions": 1, "NoSuchKernel": 2}}
    detail = programs.decide_hits(facts(misses=misses)).detail
    assert "compiled 3 kernels that the cache lacks (2 NoSuchKernel, 1 OtherOptions)" in detail
    assert "the cache has 9, so at most 75 % hit" in detail


def test_lower_bounds_are_named() -> None:
    detail = programs.decide_hits(facts(misses={"kernels": 1, "reasons": {"Unknown": 1}, "atLeast": True})).detail
    assert "compiled at least 1 kernel that" in detail


@pytest.mark.parametrize(
    "given", [facts(), facts(uid="u-2", misses={"kernels": 3}), facts(misses={"mountedKernels": 1})]
)
def test_without_a_report_of_this_volume_the_size_of_the_layer_counts(given: Facts) -> None:
    assert "whose size is not known" in programs.decide_hits(given).detail


def vllm(**fields: object) -> dict[str, object]:
    """A report of vLLM's graphs alone."""
    found = {"compiled": 62, "mounted": 62, "reasons": {"OtherEnvironment": 62}} | fields
    total = {"kernels": 62, "mountedKernels": 62, "reasons": found["reasons"]}
    return total | {"runtimes": {"vllm": found}}


def test_the_factor_for_which_an_engine_chose_another_directory_breaks_the_link() -> None:
    text = "VLLM_NIXL_SIDE_CHANNEL_PORT: the cache has 5600, the pod has 20097"
    outcome = programs.decide_hits(facts(misses=vllm(difference=text)))
    assert isinstance(outcome, outcomes.Broken)
    assert outcome.detail == (f"vLLM has chosen another directory than the mounted one, and compiled 62 graphs: {text}")
    assert "give the pod the value" in outcome.hint


@pytest.mark.parametrize("fields", [{"reasons": {"NoSuchKernel": 62}}, {"reasons": {"Unknown": 62}}, {"mounted": 0}])
def test_without_a_known_other_directory_the_link_holds(fields: dict[str, object]) -> None:
    outcome = programs.decide_hits(facts(misses=vllm(**fields)))
    assert isinstance(outcome, outcomes.Holds)
    assert "compiled 62 kernels that the cache lacks" in outcome.detail


def test_a_factor_of_some_kernels_is_named_and_breaks_nothing() -> None:
    found = {"compiled": 1, "mounted": 3, "reasons": {"OtherOptions": 1}, "difference": "an option differs"}
    misses = {"kernels": 1, "mountedKernels": 3, "reasons": {"OtherOptions": 1}, "runtimes": {"triton": found}}
    outcome = programs.decide_hits(facts(misses=misses))
    assert isinstance(outcome, outcomes.Holds)
    assert "(1 OtherOptions; triton: an option differs)" in outcome.detail
