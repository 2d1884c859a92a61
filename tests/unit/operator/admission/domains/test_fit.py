"""The fit check: what a set needs in whole nodes, and which free nodes the cluster has. Pure."""

from typing import Any

from gkm.api.domain_capacity import CliqueCapacity, DomainCapacity, NodePool
from gkm.api.mnnvl_metadata import AUTO_MNNVL, MNNVL_GROUP
from gkm_operator.admission.domains.fit import Need, needs, warnings
from support.grove.objects import Json, clique, container, scaling_group
from support.grove.tables import table
from support.grove.typed import GPUS, a_set, device_classes

ENABLED = {AUTO_MNNVL: "enabled"}


def a_clique(name: str, *free: int, products: tuple[str, ...] = ("GB200", "GB300")) -> CliqueCapacity:
    """A clique with a pool of 18 nodes of each product, of which that many are free."""
    pools = (NodePool(product, 4, 18, count) for product, count in zip(products, free, strict=False))
    return CliqueCapacity(name, tuple(pools))


def needed(*cliques: Json, **fields: Any) -> list[Need]:  # noqa: ANN401 -- the builder's
    return needs(a_set(*cliques, **fields), GPUS, device_classes)


@table(
    "found, nodes",
    [
        ("each pod takes a node", needed(clique("a", replicas=3), annotations=ENABLED), {"": 3}),
        ("two cliques add up", needed(clique("a", replicas=3), clique("b"), annotations=ENABLED), {"": 4}),
        (
            "cliques without GPUs need none",
            needed(clique("a"), clique("b", 0, replicas=9), annotations=ENABLED),
            {"": 1},
        ),
        (
            "a scaling group multiplies its cliques",
            needed(clique("a", replicas=2), annotations=ENABLED, scaling_groups=[scaling_group("sg", "a", replicas=3)]),
            {"": 6},
        ),
        (
            "groups are apart",
            needed(
                clique("a", annotations={MNNVL_GROUP: "x"}), clique("b", replicas=2, annotations={MNNVL_GROUP: "y"})
            ),
            {"x": 1, "y": 2},
        ),
        ("a clique that withdraws needs none", needed(clique("a", annotations={MNNVL_GROUP: "none"})), {}),
    ],
)
def test_a_domain_needs_a_node_for_each_pod_that_requests_gpus(found: list[Need], nodes: dict[str, int]) -> None:
    assert {need.group: need.nodes for need in found} == nodes


@table(
    "made, gpus",
    [
        ("a limit", clique("a", 4), 4),
        (
            "a request only",
            clique("a", containers=[{"name": "c", "resources": {"requests": {"nvidia.com/gpu": 4}}}]),
            4,
        ),
        ("two containers", clique("a", containers=[container("c", 2), container("d", 2)]), 4),
        ("a part of a GPU", clique("a", containers=[container("c", 1, "nvidia.com/mig-1g.5gb")]), 0),
        ("another notation", clique("a", containers=[container("c", "1e1")]), 0),
        ("a number beyond all", clique("a", containers=[container("c", "9" * 5000)]), 0),
        ("a claim may add some", clique("a", 4, resourceClaims=[{"name": "x"}]), 0),
    ],
)
def test_the_gpus_of_a_pod_are_counted_where_resources_show_them(made: Json, gpus: int) -> None:
    assert [dict(need.gpus) for need in needed(made, annotations=ENABLED)] == [{"a": gpus}]


FOUR = [Need("", 2, 4, {"worker": 4})]
EIGHT_GPUS_A_NODE = CliqueCapacity("a.1", (NodePool("GB200", 8, 18, 18),))


@table(
    "capacity, expected",
    [
        ("enough for all", DomainCapacity((a_clique("a.1", 8),)), []),
        ("enough in two cliques", DomainCapacity((a_clique("a.1", 4), a_clique("a.2", 5))), []),
        (
            "the largest clique is too small",
            DomainCapacity((a_clique("a.1", 1), a_clique("a.2", 2))),
            ["needs 4 whole nodes in one clique; the largest free clique has 2 (clique a.2 with 18 nodes)"],
        ),
        ("enough for some replicas", DomainCapacity((a_clique("a.1", 7),)), ["enough for 1 of 2 replicas"]),
        ("no clique", DomainCapacity(), ["no node has an NVLink clique"]),
        (
            "two products",
            DomainCapacity((a_clique("a.1", 9), a_clique("a.2", 0, 9))),
            ["2 GPU products (GB200, GB300)"],
        ),
        (
            "free nodes without a fabric",
            DomainCapacity((a_clique("a.1", 9),), (NodePool("H100", 8, 5, 3),)),
            ["nodes without an NVLink fabric: 3"],
        ),
        ("none of them is free", DomainCapacity((a_clique("a.1", 9),), (NodePool("H100", 8, 5, 0),)), []),
        ("a pod of half a node", DomainCapacity((EIGHT_GPUS_A_NODE,)), ["requests 4 of the 8 GPUs of a node"]),
    ],
)  # fmt: skip
def test_each_shortage_is_a_warning(capacity: DomainCapacity, expected: list[str]) -> None:
    found = list(warnings(FOUR, [], capacity, one_clique=False))
    assert len(found) == len(expected)
    assert all(text in warning for text, warning in zip(expected, found, strict=True))


@table(
    "capacity, expected",
    [
        ("products of different cliques do not mix", DomainCapacity((a_clique("a.1", 9), a_clique("a.2", 0, 9))), 0),
        ("a pool is large enough", DomainCapacity((a_clique("a.1", 9, 1),)), 0),
        ("only both pools are, another clique has one", DomainCapacity((a_clique("a.1", 3, 3), a_clique("a.2", 6))), 0),
        ("no clique has a large pool", DomainCapacity((a_clique("a.1", 3, 3), a_clique("a.2", 2, 3))), 1),
        (
            "nodes without a fabric are out of reach",
            DomainCapacity((a_clique("a.1", 9),), (NodePool("H100", 8, 5, 3),)),
            0,
        ),
    ],
)  # fmt: skip
def test_with_an_affinity_to_one_clique_only_its_own_products_mix(capacity: DomainCapacity, expected: int) -> None:
    found = [text for text in warnings(FOUR, [], capacity, one_clique=True) if "products" in text or "fabric" in text]
    assert len(found) == expected


def test_a_domain_of_one_node_spans_nothing() -> None:
    mixed = DomainCapacity((a_clique("a.1", 9, 9),), (NodePool("H100", 8, 5, 3),))
    assert list(warnings([Need("", 1, 1, {"a": 4})], [], mixed, one_clique=False)) == []


def test_a_group_is_named() -> None:
    (found,) = warnings([Need("prefill", 1, 2, {})], [], DomainCapacity(), one_clique=False)
    assert found.startswith("group 'prefill' of a replica needs 2 whole nodes")
