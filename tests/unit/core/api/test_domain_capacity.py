"""The ConfigMap gkm-domains: what the controllers write, admission reads; other texts are refused with a reason."""

import json

import msgspec
import pytest
from gkm.api.domain_capacity import (
    MAX_BYTES,
    MAX_CLIQUES,
    CliqueCapacity,
    DomainCapacity,
    NodePool,
    parse_capacity,
    parse_conditions,
)

POOL = NodePool("NVIDIA-GB200", 4, 18, 2)
CLIQUE = CliqueCapacity("7b968a6d-c8aa-45e1-9e07-e1e51be99c31.1", (POOL, NodePool("NVIDIA-GB300", 4, 3, 1)))


def test_a_capacity_survives_its_text() -> None:
    capacity = DomainCapacity((CLIQUE,), (NodePool("", 8, 5, 5),))
    assert parse_capacity(msgspec.json.encode(capacity).decode()) == capacity


def test_a_clique_counts_the_nodes_of_all_its_pools() -> None:
    assert (CLIQUE.nodes, CLIQUE.free) == (21, 3)


def test_the_largest_capacity_fits_in_a_config_map() -> None:
    one = CliqueCapacity(CLIQUE.name, (POOL,))
    assert len(msgspec.json.encode(DomainCapacity((one,) * MAX_CLIQUES))) < MAX_BYTES


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "Input data was truncated"),
        ("[]", "Expected `object`, got `array`"),
        ('{"cliques": [{"name": "a"}]}', "missing required field `pools`"),
        (json.dumps({"cliques": [{"name": "a", "pools": []}] * (MAX_CLIQUES + 1)}), "of length <= "),
        ('{"cliques": [{"name": "a", "pools": [{"product": "x", "gpusPerNode": 4, "nodes": 1, "free": -1}]}]}', ">= 0"),
        (" " * (MAX_BYTES + 1), f"more than {MAX_BYTES} characters"),
        ('{"cliques": [{"x": ' + "[" * 100_000, "nested too deeply"),
    ],
    ids=["empty", "a list", "no pools", "too many cliques", "a negative number", "too long", "nested deeply"],
)
def test_a_text_that_is_no_capacity_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_capacity(text)


def test_conditions_are_read_from_their_list() -> None:
    condition = {
        "type": "DomainsAvailable",
        "status": "True",
        "reason": "Installed",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    assert [(one.type, one.status) for one in parse_conditions(json.dumps([condition]))] == [
        ("DomainsAvailable", "True")
    ]
    with pytest.raises(ValueError, match="type"):
        parse_conditions("[{}]")
