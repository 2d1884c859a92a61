"""What `gkm why` says of the kernels that a program compiled beside its cache."""

import hashlib

import pytest
from gkm.api.nodes import GKMCacheNode
from gkm_cli.why import links
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
    detail = links.decide_hits(facts(misses=misses)).detail
    assert "compiled 3 kernels that the cache lacks (2 NoSuchKernel, 1 OtherOptions)" in detail
    assert "the cache has 9, so at most 75 % hit" in detail


def test_lower_bounds_are_named() -> None:
    detail = links.decide_hits(facts(misses={"kernels": 1, "reasons": {"Unknown": 1}, "atLeast": True})).detail
    assert "compiled at least 1 kernel that" in detail


@pytest.mark.parametrize(
    "given", [facts(), facts(uid="u-2", misses={"kernels": 3}), facts(misses={"mountedKernels": 1})]
)
def test_without_a_report_of_this_volume_the_size_of_the_layer_counts(given: Facts) -> None:
    assert "whose size is not known" in links.decide_hits(given).detail
