"""Whatever the inventory and the run are, there is an answer that holds, or an error that says what is wrong."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from gkm.packing.inventory import InvalidInventoryError
from gkm.packing.plan import plan
from gkm.packing.values import Location, Malleability, Node, Plan, Policy, Refusal, Request
from support.packing.checker import problems
from support.packing.inventories import Shape, generated

HERE = Location("r", "c", "b", "d")
POLICIES = pytest.mark.parametrize("policy", list(Policy))


def planned(nodes: Sequence[Node], run: Request) -> Plan:
    """Return the plan of a run that fits; it is what it says."""
    answer = plan(nodes, run, "v1")
    assert isinstance(answer, Plan), answer
    assert problems(nodes, run, answer) == []
    return answer


def refused(nodes: Sequence[Node], run: Request) -> Refusal:
    answer = plan(nodes, run, "v1")
    assert isinstance(answer, Refusal)
    assert answer.message
    assert "\n" not in answer.message
    return answer


@POLICIES
@pytest.mark.parametrize("spread", [True, False])
def test_where_there_are_no_nodes_no_group_fits(policy: Policy, *, spread: bool) -> None:
    assert refused((), Request(8, 8, 8, spares=1, may_spread=spread, policy=policy)).largest_groups == 0


@POLICIES
def test_one_node_takes_what_it_has_and_no_more(policy: Policy) -> None:
    node = (Node("n", HERE, 8, 8),)
    assert planned(node, Request(8, 4, 8, policy=policy)).metrics.stranded_gpus == 0
    assert planned(node, Request(4, 4, 4, spares=1, policy=policy)).metrics.spares_elsewhere == 0
    assert refused(node, Request(16, 4, 8, policy=policy)).largest_groups == 1
    assert refused(node, Request(8, 4, 8, spares=1, policy=policy)).largest_groups == 0


def test_a_full_node_takes_nothing() -> None:
    assert refused((Node("n", HERE, 8, 0),), Request(1, 1, 1)).largest_groups == 0


def test_a_node_without_gpus_changes_nothing() -> None:
    nodes = (Node("n", HERE, 8, 8), Node("none", HERE, 0, 0))
    assert planned(nodes, Request(8, 8, 8)).groups == planned(nodes[:1], Request(8, 8, 8)).groups


@POLICIES
def test_nodes_of_one_gpu_hold_groups_of_many_pods(policy: Policy) -> None:
    nodes = [
        Node(f"n{number:04}", Location("r", "c", f"b{number % 7}", f"d{number % 35:02}"), 1, number % 3 % 2)
        for number in range(2_100)
    ]
    assert planned(nodes, Request(20 * 8, 1, 8, spares=1, policy=policy)).metrics.domains == 10
    assert refused(nodes, Request(20 * 8, 2, 8, policy=policy)).largest_groups == 0


@POLICIES
def test_nodes_of_many_sizes_share_a_domain(policy: Policy) -> None:
    chance = Random(4)
    nodes = []
    for number in range(600):
        total = chance.choice([1, 2, 4, 8, 16, 72])
        place = Location("r", "c", f"b{number % 5}", f"d{number % 40:02}")
        nodes.append(Node(f"n{number:03}", place, total, chance.randint(0, total)))
    for pod in (1, 3, 4, 8, 72):
        answer = plan(nodes, Request(6 * 2 * pod, pod, 2 * pod, spares=1, policy=policy), "v1")
        assert isinstance(answer, Plan) is (pod < 72)
        if isinstance(answer, Plan):
            assert problems(nodes, answer.request, answer) == []


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (Node("n1", HERE, 8, -1), "n1"),
        (Node("n1", HERE, -8, -8), "n1"),
        (Node("n1", HERE, 8, 9), "n1"),
        (Node("n1", HERE, 10**30, 10**30), "n1"),
        (Node("n1", HERE, 8, float("nan")), "n1"),  # type: ignore[arg-type]
        (Node("n1", HERE, 8, "NaN"), "n1"),  # type: ignore[arg-type]
        (Node("n1", HERE, 8, None), "n1"),  # type: ignore[arg-type]
        (Node("n1", HERE, 8, 7.5), "n1"),  # type: ignore[arg-type]
        (Node("n0", HERE, 8, 8), "two nodes are called 'n0'"),
        (Node("n0", HERE._replace(domain="other"), 8, 8), "two nodes are called 'n0'"),
    ],
)
def test_a_node_that_cannot_be_is_refused_by_name(node: Node, said: str) -> None:
    with pytest.raises(InvalidInventoryError, match=said) as error:
        plan((Node("n0", HERE, 8, 8), node), Request(8, 8, 8), "v1")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["", " ", "\n", '"\\', "\x00", "ﬀ", "\U0001f600", "é", "e\u0301", "n" * 10_000])
def test_names_are_only_text(name: str) -> None:
    place = Location(name, name, name, name)
    nodes = (Node(name, place, 8, 8), Node("other", HERE, 8, 8))
    assert len(planned(nodes, Request(16, 8, 8)).groups) == 2


def test_half_a_surrogate_pair_has_no_canonical_form_and_is_refused() -> None:
    with pytest.raises(ValueError, match="surrogate"):
        plan((Node("\ud800", HERE, 8, 8),), Request(8, 8, 8), "v1")


def test_domains_of_one_name_in_two_blocks_are_two() -> None:
    nodes = tuple(Node(block, HERE._replace(block=block), 8, 8) for block in ("b1", "b2"))
    assert planned(nodes, Request(16, 8, 8)).metrics.domains == 2
    assert refused(nodes, Request(16, 8, 16)).largest_groups == 0


MOST = 10**9


@pytest.mark.parametrize(
    "run",
    [
        Request(MOST, 1, 1),
        Request(MOST, 1, MOST),
        Request(MOST, MOST, MOST),
        Request(MOST - 1, 1, 2, spares=3),
        Request(MOST - 1, 1, 2, may_spread=False),
        Request(8, 8, 8, spares=MOST),
        Request(8, 8, 8, spares=MOST, may_spread=False),
        Request(8, 8, 8, spares=MOST, malleability=Malleability(MOST, 1)),
    ],
    ids=repr,
)
@POLICIES
def test_a_run_of_impossible_size_is_refused(run: Request, policy: Policy) -> None:
    nodes = (Node("n0", HERE, 8, 8), Node("n1", HERE, 8, 3))
    largest = refused(nodes, replace(run, policy=policy)).largest_groups
    assert largest == (8 // run.pod_gpus + 3 // run.pod_gpus) // (run.group_pods + run.spares)


@pytest.mark.parametrize(
    "sizes", [(1 << 62, 1, 1, 0), (8, 8, 1 << 62, 0), (1 << 80, 1 << 80, 1 << 80, 0), (8, 8, 8, 1 << 62)]
)
def test_a_run_larger_than_any_machine_is_no_request(sizes: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="at most 1000000000 GPUs"):
        Request(*sizes)


def test_a_malleable_run_of_a_million_sizes_gets_the_largest_that_fits() -> None:
    nodes = generated(Shape(nodes=180, node_gpus=8), Random(1))
    free = sum(node.free for node in nodes)
    run = Request(1_000_000, 1, 1, malleability=Malleability(step_gpus=1, min_gpus=1))
    assert planned(nodes, run).gpus == free


def test_of_a_thousand_equal_domains_the_first_are_taken() -> None:
    nodes = [Node(f"n{n:04}", Location("r", "c", f"b{n // 8:03}", f"d{n:04}"), 8, 8) for n in range(1_000)]
    chance = Random(2)
    chance.shuffle(nodes)
    groups = planned(nodes, Request(80, 8, 8)).groups
    assert [group.place.domain for group in groups] == [f"d{n:04}" for n in range(10)]


@POLICIES
@pytest.mark.parametrize("spares", [0, 1])
def test_a_million_gpus(policy: Policy, spares: int) -> None:
    nodes = generated(Shape(nodes=125_000, node_gpus=8), Random(6))
    assert len(planned(nodes, Request(256 * 16, 8, 16, spares=spares, policy=policy)).groups) == 256


def test_a_million_gpus_in_one_domain() -> None:
    nodes = [Node(f"n{n:06}", HERE, 8, n % 9) for n in range(125_000)]
    assert planned(nodes, Request(64 * 16, 8, 16, spares=1)).metrics.domains == 1
    thousand = plan(nodes, Request(1_024 * 16, 8, 16, spares=1), "v1")
    assert isinstance(thousand, Plan)
    assert not any({share.node for share in g.nodes} & {spare.node for spare in g.spares} for g in thousand.groups)


def test_half_a_million_domains_of_one_gpu() -> None:
    nodes = [Node(f"n{n:06}", HERE._replace(block=f"b{n // 8}", domain=f"d{n:06}"), 1, 1) for n in range(500_000)]
    answer = plan(nodes, Request(256, 1, 1), "v1")
    assert isinstance(answer, Plan)
    assert (answer.metrics.domains, answer.metrics.blocks, answer.metrics.gap) == (256, 32, 0)


def test_a_million_gpus_of_which_every_node_is_a_domain() -> None:
    nodes = [Node(f"n{n:06}", HERE._replace(domain=f"d{n:06}"), 8, n % 9) for n in range(125_000)]
    answer = planned(nodes, Request(256 * 4, 1, 4))
    assert (answer.metrics.domains, answer.metrics.stranded_gpus) == (128, 0)
