"""The order in which nodes pull an image."""

import msgspec
import pytest
from gkm.api.caches import CacheSpec
from gkm.api.rollouts import LAST_RANK, RolloutPolicy, RolloutStatus, is_open, rank_of

ONE, TWO = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"
NODES = [f"gpu-node-{number}" for number in range(1000)]


def test_places_are_spread_evenly() -> None:
    tenths = [sum(rank_of(node, ONE)[0] in digits for node in NODES) for digits in ("0123", "4567", "89ab", "cdef")]
    assert all(200 < count < 300 for count in tenths)
    assert len({rank_of(node, ONE) for node in NODES}) == len(NODES)


def test_another_image_has_another_order() -> None:
    first = {digest: set(sorted(NODES, key=lambda node: rank_of(node, digest))[:100]) for digest in (ONE, TWO)}
    assert len(first[ONE] & first[TWO]) < 30


def test_no_node_lies_behind_the_last_place() -> None:
    assert all(rank_of(node, ONE) <= LAST_RANK for node in NODES)


@pytest.mark.parametrize(
    ("policy", "status", "expected"),
    [
        (None, None, True),
        (None, RolloutStatus(ONE, "0" * 16), True),
        (RolloutPolicy(1), None, False),
        (RolloutPolicy(1), RolloutStatus(TWO, LAST_RANK), False),
        (RolloutPolicy(1), RolloutStatus(ONE, "0" * 16), False),
        (RolloutPolicy(1), RolloutStatus(ONE, rank_of("n", ONE)), True),
        (RolloutPolicy(1), RolloutStatus(ONE, LAST_RANK), True),
    ],
)
def test_a_node_pulls_when_its_place_is_open(
    policy: RolloutPolicy | None,
    status: RolloutStatus | None,
    expected: bool,  # noqa: FBT001 -- a column
) -> None:
    assert is_open(policy, status, "n", ONE) is expected


@pytest.mark.parametrize("number", [0, -1, 100_001, 1.5, "1", None])
def test_a_number_of_nodes_that_makes_no_sense_is_refused(number: object) -> None:
    spec = {"image": "registry.example/llama:1", "rollout": {"maxConcurrentNodes": number}}
    with pytest.raises(msgspec.ValidationError, match="maxConcurrentNodes"):
        msgspec.convert(spec, CacheSpec)


def test_a_rollout_without_a_number_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="maxConcurrentNodes"):
        msgspec.convert({"image": "registry.example/llama:1", "rollout": {}}, CacheSpec)
