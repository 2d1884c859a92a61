"""Whatever a node has to say, the API takes it, and what matters most is said."""

import msgspec
import pytest
from gkm.api.nodes import IncompatibleGPUs, NodeCacheStatus, NodeStatus, PodUse
from gkm_agent.report.objects import fit_to_limit
from hypothesis import given
from hypothesis import strategies as st

DIGEST = "sha256:" + "a" * 64


def cache(pods: int = 0, message: str = "") -> NodeCacheStatus:
    return NodeCacheStatus(
        state="Failed",
        digest=DIGEST,
        reason="Unauthorized",
        message=message,
        incompatible_gpus=[IncompatibleGPUs([0], "BackendMismatch", message)] if message else [],
        pods=[PodUse("team", f"pod-{number}", f"csi-{number}", DIGEST) for number in range(pods)],
    )


def status(count: int, pods: int = 0, message: str = "") -> NodeStatus:
    return NodeStatus(caches={f"cache-{number:04d}": cache(pods, message) for number in range(count)})


def size(value: NodeStatus) -> int:
    return len(msgspec.json.encode(value))


def test_what_fits_is_left_alone() -> None:
    assert fit_to_limit(status(300, message="no")) == status(300, message="no")


def test_pods_go_first() -> None:
    found = fit_to_limit(status(10, pods=500), 100_000)
    assert {len(cache.pods) for cache in found.caches.values()} == {20}


def test_then_sentences_and_never_the_state() -> None:
    found = fit_to_limit(status(100, pods=50, message="x" * 1000), 60_000)
    assert len(found.caches) == 100
    for shown in found.caches.values():
        assert (shown.state, shown.digest, shown.reason) == ("Failed", DIGEST, "Unauthorized")
        assert len(shown.message) == 160
        assert [(len(group.message), group.reason) for group in shown.incompatible_gpus] == [(160, "BackendMismatch")]


def test_of_too_many_the_first_are_shown() -> None:
    found = fit_to_limit(status(1000), 20_000)
    names = list(found.caches)
    assert names == sorted(status(1000).caches)[: len(names)]
    assert 15_000 < size(found) <= 20_000


@given(count=st.integers(0, 60), pods=st.integers(0, 30), length=st.integers(0, 1024), limit=st.integers(500, 50_000))
def test_it_always_fits(count: int, pods: int, length: int, limit: int) -> None:
    assert size(fit_to_limit(status(count, pods, "y" * length), limit)) <= limit


@pytest.mark.parametrize("count", [200, 1000])
def test_the_states_of_hundreds_of_caches_all_fit(count: int) -> None:
    assert len(fit_to_limit(status(count, pods=20, message="z" * 500)).caches) == count
