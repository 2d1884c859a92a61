"""The status of a KernelCache by that of its GKMCache: no state is better than what GKM knows."""

import msgspec
import pytest
from gkm.api.caches import CacheSpec, CacheStatus, GKMCache
from gkm.api.kernel_caches import KernelCache, KernelCacheNodeGroup, KernelCacheStatus
from gkm.api.meta import Condition, ObjectMeta
from gkm_operator.kserve.translation import Obstacle, Obstructed, kernel_cache_status, own_conditions
from msgspec import structs
from support.operator.kernel_caches import IMAGE, kernel_cache, node_group

NOW, LATER = "2026-11-29T10:00:00Z", "2026-11-29T11:00:00Z"
GROUP = msgspec.convert(node_group(), KernelCacheNodeGroup)


def kernel(**more: object) -> KernelCache:
    return msgspec.convert(kernel_cache("qwen", "ml", **more), KernelCache)  # type: ignore[arg-type]


def condition(kind: str, value: str, reason: str, message: str = "why") -> Condition:
    return Condition(kind, value, reason, message, NOW)


VERIFIED = condition("Verified", "True", "CosignSuccess", "signed by key abc")


def gkm_cache(verified: Condition | None = VERIFIED, *, image: str = IMAGE, **counts: int) -> GKMCache:
    """A GKMCache whose status has these numbers of nodes."""
    conditions = [verified, condition("Ready", "False", "NodesPending")] if verified else []
    status = CacheStatus(image=image, conditions=conditions)
    status = structs.replace(status, **{f"{name}_nodes": number for name, number in counts.items()})
    return GKMCache(ObjectMeta("qwen", "ml"), CacheSpec(IMAGE), status)


def status(cache: GKMCache | None, obstructed: Obstructed | None = None) -> KernelCacheStatus:
    return kernel_cache_status(kernel(), GROUP, cache, obstructed, NOW)


def told(found: KernelCacheStatus, kind: str) -> tuple[str, str, str]:
    one = found.condition(kind)
    assert one is not None
    return one.status, one.reason, one.message


@pytest.mark.parametrize(
    ("cache", "state"),
    [
        (None, "Pending"),
        (gkm_cache(None, total=2, ready=2), "Pending"),
        (gkm_cache(condition("Verified", "Unknown", "RegistryUnavailable"), total=2, ready=2), "Pending"),
        (gkm_cache(image="registry.test/other:1", total=2, ready=2), "Pending"),
        (gkm_cache(condition("Verified", "False", "SignatureMissing"), total=2, ready=2), "Error"),
        (gkm_cache(), "Pending"),
        (gkm_cache(total=2), "Preparing"),
        (gkm_cache(total=2, ready=1), "Preparing"),
        (gkm_cache(total=2, ready=1, failed=1), "Error"),
        (gkm_cache(total=2, ready=2), "Ready"),
        (gkm_cache(total=3, ready=2, incompatible=1), "Ready"),
        (gkm_cache(total=3, incompatible=3), "Error"),
    ],
)
def test_a_state_is_ready_only_if_all_nodes_that_fit_are(cache: GKMCache | None, state: str) -> None:
    assert status(cache).state == state


def test_nodes_whose_gpus_do_not_fit_are_in_no_count() -> None:
    counts = status(gkm_cache(total=9, ready=3, failed=1, incompatible=2)).counts
    assert counts is not None
    assert (counts.node_count, counts.nodes_ready, counts.nodes_preparing, counts.nodes_error) == (7, 3, 3, 1)


def test_nodes_whose_gpus_do_not_fit_are_told_with_the_reason() -> None:
    cache = gkm_cache(total=3, ready=2, incompatible=1)
    unfit = structs.replace(cache.status, incompatible_node_conditions={"ArchitectureMismatch": ["n3"]})
    found = told(status(structs.replace(cache, status=unfit)), "GPUCompatible")
    assert found[:2] == ("False", "SomeNodesIncompatible")
    assert found[2].endswith("1 of 3 nodes: ArchitectureMismatch: n3")


@pytest.mark.parametrize(
    ("cache", "value", "reason"),
    [
        (gkm_cache(), "Unknown", "NoNodeReports"),
        (gkm_cache(total=2), "True", "AllNodesCompatible"),
        (gkm_cache(total=2, incompatible=2), "False", "NodesIncompatible"),
    ],
)
def test_gpus_that_no_node_has_compared_are_not_compatible(cache: GKMCache, value: str, reason: str) -> None:
    assert told(status(cache), "GPUCompatible")[:2] == (value, reason)


@pytest.mark.parametrize(
    ("verified", "mode", "state", "succeeded"),
    [
        (None, "cert", "Pending", False),
        (condition("Verified", "Unknown", "RegistryUnavailable"), "cert", "Pending", False),
        (condition("Verified", "False", "SignatureMissing"), "cert", "Failed", False),
        (condition("Verified", "True", "NotRequired"), "none", "Skipped", False),
        (VERIFIED, "cert", "Succeeded", True),
    ],
)
def test_verification_has_the_words_of_kserve(
    verified: Condition | None, mode: str, state: str, *, succeeded: bool
) -> None:
    found = status(gkm_cache(verified)).verification
    assert found is not None
    assert (found.mode, found.state, found.verified) == (mode, state, succeeded)


def test_an_obstacle_is_an_error_and_says_what_to_do() -> None:
    found = status(None, Obstructed(Obstacle.NAME_TAKEN, "rename it"))
    assert found.state == "Error"
    assert told(found, "Ready") == ("False", "NameTaken", "rename it")


def test_a_ready_condition_is_that_of_the_gkm_cache() -> None:
    assert told(status(gkm_cache()), "Ready") == ("False", "NodesPending", "why")
    assert told(status(None), "Ready")[:2] == ("Unknown", "NotVerified")


def test_what_has_no_counterpart_is_told() -> None:
    paths = ({"containerPath": "/a", "ociPath": "io.vllm.cache"}, {"containerPath": "/b", "ociPath": "io.habana.cache"})
    group = msgspec.convert(node_group(tolerations=[{"operator": "Exists"}]), KernelCacheNodeGroup)
    value, reason, message = told(kernel_cache_status(kernel(paths=paths), group, None, None, NOW), "Translated")
    assert (value, reason) == ("False", "PartlyTranslated")
    assert all(words in message for words in ("2 cachePaths", "io.habana.cache", "tolerations of gpu-workers"))


def test_a_whole_translation_says_how_a_pod_mounts_the_cache_and_what_never_has_a_counterpart() -> None:
    value, _, message = told(status(None), "Translated")
    assert value == "True"
    wishes = "gkm.io/cache-path=/root/.cache/vllm and gkm.io/cache-container=kserve-container"
    assert f"the label gkm.io/cache=qwen, with the annotations {wishes}" in message
    assert "spec.artifact.identity" in message


def test_the_time_of_a_condition_stays_while_its_status_does_and_conditions_of_others_are_left() -> None:
    first = status(gkm_cache())
    foreign = condition("Scheduled", "True", "Other")
    found = structs.replace(kernel(), status=structs.replace(first, conditions=[*first.conditions, foreign]))
    assert own_conditions(found) == first.conditions
    again = kernel_cache_status(found, GROUP, gkm_cache(total=1, ready=1), None, LATER)
    times = {each.type: each.last_transition_time for each in again.conditions}
    assert times == {"GPUCompatible": LATER, "Ready": NOW, "Translated": NOW}
