"""The ComputeDomains that a PodCliqueSet requires, and how they differ from those that exist."""

import pytest
from gkm.api.computedomains import ComputeDomain
from gkm.api.mnnvl_metadata import AUTO_MNNVL, MNNVL_GROUP, PART_OF, REPLICA_INDEX, SCALING_GROUP, SCALING_GROUP_INDEX
from gkm_operator.mnnvl.required import (
    MAX_DOMAINS,
    DomainDifference,
    SetDomainKey,
    difference,
    domain_of,
    key_of,
    limit_problem,
    required_domains,
    required_groups,
)
from support.grove.objects import clique, scaling_group
from support.grove.tables import table
from support.grove.typed import GPUS, a_compute_domain, a_pod_clique, a_set, labeled_pod_clique

ENABLED = {AUTO_MNNVL: "enabled"}

KEY = SetDomainKey(0, "a")
EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"


def group(value: str) -> dict[str, str]:
    return {MNNVL_GROUP: value}


def test_the_template_of_a_clique_is_found_by_its_exact_name() -> None:
    given = a_set(clique("worker", annotations=group("a")), clique("gpu-worker", annotations=group("b")))
    assert domain_of(given, a_pod_clique("test-pcs", "0", "worker")) == SetDomainKey(0, "a")
    assert domain_of(given, a_pod_clique("test-pcs", "0", "gpu-worker")) == SetDomainKey(0, "b")


def test_a_clique_in_several_scaling_groups_is_in_a_domain_of_each() -> None:
    groups = [scaling_group(name, "worker", annotations=group(f"of-{name}")) for name in ("sg1", "sg2")]
    given = a_set(scaling_groups=groups)
    assert required_groups(given, GPUS) == {"of-sg1", "of-sg2"}
    for name in ("sg1", "sg2"):
        assert domain_of(given, a_pod_clique("test-pcs", "0", "worker", name)) == SetDomainKey(0, f"of-{name}")


def test_a_scaling_group_that_lists_a_clique_twice_counts_once() -> None:
    given = a_set(scaling_groups=[scaling_group("sg", "worker", "worker", "unknown", annotations=group("a"))])
    assert [(made.name, within and within.name) for made, within in given.memberships()] == [("worker", "sg")]


def test_every_pod_clique_with_gpus_belongs_to_a_required_domain() -> None:
    given = a_set(
        clique("leader"),
        clique("worker", annotations=group("workers")),
        clique("encoder"),
        annotations=group("all"),
        scaling_groups=[scaling_group("sg", "encoder", annotations=group("encoders"))],
        replicas=3,
    )
    found = {
        domain_of(given, a_pod_clique("test-pcs", replica, name, within))
        for replica in "012"
        for name, within in (("leader", ""), ("worker", ""), ("encoder", "sg"))
    }
    assert found == required_domains(given, GPUS)


@table(
    "name, labels",
    [
        ("another set", "other-0-worker", {PART_OF: "other", REPLICA_INDEX: "0"}),
        ("no labels", "test-pcs-0-worker", {}),
        ("no replica", "test-pcs-0-worker", {PART_OF: "test-pcs"}),
        ("a negative replica", "test-pcs--1-worker", {PART_OF: "test-pcs", REPLICA_INDEX: "-1"}),
        ("a replica with a zero in front", "test-pcs-00-worker", {PART_OF: "test-pcs", REPLICA_INDEX: "00"}),
        ("a replica in other digits", "test-pcs-1-worker", {PART_OF: "test-pcs", REPLICA_INDEX: "\u0661"}),
        ("a replica of many digits", "test-pcs-0-worker", {PART_OF: "test-pcs", REPLICA_INDEX: "9" * 60}),
        ("a name of another replica", "test-pcs-1-worker", {PART_OF: "test-pcs", REPLICA_INDEX: "0"}),
        (
            "a name outside its scaling group",
            "test-pcs-0-worker",
            {PART_OF: "test-pcs", REPLICA_INDEX: "0", SCALING_GROUP: "test-pcs-0-sg", SCALING_GROUP_INDEX: "0"},
        ),
    ],
)
def test_a_pod_clique_with_other_names_or_labels_belongs_to_no_domain(name: str, labels: dict[str, str]) -> None:
    assert domain_of(a_set(annotations=ENABLED), labeled_pod_clique(name, labels)) is None


def test_a_template_that_the_set_has_no_more_inherits() -> None:
    given = a_set(annotations=group("all"), scaling_groups=[scaling_group("sg", annotations=group("sg"))])
    assert domain_of(given, a_pod_clique("test-pcs", "0", "removed")) == SetDomainKey(0, "all")
    assert domain_of(given, a_pod_clique("test-pcs", "0", "removed", "sg")) == SetDomainKey(0, "sg")
    assert domain_of(given, a_pod_clique("test-pcs", "0", "removed", "other")) == SetDomainKey(0, "all")


@table(
    "replicas, groups, problem",
    [
        ("as many as allowed", MAX_DOMAINS, 1, None),
        ("one too many", MAX_DOMAINS + 1, 1, "use at most 10000 replicas"),
        ("in two groups", MAX_DOMAINS // 2 + 1, 2, "use at most 5000 replicas"),
        ("as many replicas as an integer holds", 2**31 - 1, 3, "use at most 3333 replicas"),
        ("no group", 2**31 - 1, 0, None),
        ("no replica", 0, 3, None),
    ],
)
def test_too_many_domains_are_a_problem_with_a_remedy(replicas: int, groups: int, problem: str | None) -> None:
    cliques = [clique(f"c{index}", annotations=group(f"g{index}")) for index in range(groups)]
    given = a_set(*cliques, replicas=replicas)
    found = limit_problem(given, GPUS)
    assert (found is None) is (problem is None)
    assert problem is None or problem in (found or "")
    assert len(required_domains(given, GPUS)) <= MAX_DOMAINS


def test_beyond_the_limit_the_first_replicas_keep_all_their_domains() -> None:
    cliques = [clique(f"c{index}", annotations=group(f"g{index}")) for index in range(3)]
    found = required_domains(a_set(*cliques, replicas=2**31 - 1), GPUS)
    assert found == {SetDomainKey(replica, f"g{index}") for replica in range(MAX_DOMAINS // 3) for index in range(3)}


@pytest.mark.timeout(20)
def test_a_set_as_large_as_the_api_server_accepts_is_read_in_linear_time() -> None:
    names = [f"c{index}" for index in range(1024)]
    given = a_set(
        *(clique(name, annotations=group(name)) for name in names),
        replicas=2**31 - 1,
        scaling_groups=[scaling_group(f"sg{index}", *["unknown"] * 1000, *names[:100]) for index in range(1024)],
    )
    assert len(required_domains(given, GPUS)) == MAX_DOMAINS // 1024 * 1024


def domain(name: str, created: str = EARLY, *, terminating: bool = False, key: SetDomainKey = KEY) -> ComputeDomain:
    times = {"creationTimestamp": created} | ({"deletionTimestamp": LATE} if terminating else {})
    return a_compute_domain(name, str(key.replica), key.group, uid=f"uid-{name}", **times)


def between(*domains: ComputeDomain) -> DomainDifference:
    """The difference, whatever order the domains have."""
    found = difference(frozenset({KEY}), domains)
    assert difference(frozenset({KEY}), reversed(domains)) == found
    return found


def test_a_domain_has_the_key_that_its_labels_state() -> None:
    assert key_of(a_compute_domain("x", "7", "workers")) == SetDomainKey(7, "workers")
    assert key_of(a_compute_domain("x", "7")) == SetDomainKey(7, "")


@table("label", [(repr(label), label) for label in ("", "abc", "-1", "01", "1.0", " 1", "1" * 11)])
def test_a_domain_without_a_replica_is_excess(label: str) -> None:
    found = between(a_compute_domain("odd", label))
    assert ([odd.metadata.name for odd in found.release], found.create) == (["odd"], (KEY,))


def test_a_lost_domain_is_neither_created_again_nor_released() -> None:
    lost = domain("x", terminating=True)
    found = between(lost)
    assert (found.lost, found.create, found.release, found.present) == ((lost,), (), (), {})


def test_an_excess_domain_that_is_terminating_is_released() -> None:
    gone = domain("x", terminating=True, key=SetDomainKey(1, "a"))
    found = between(gone)
    assert (found.lost, found.create, found.release) == ((), (KEY,), (gone,))


def test_the_younger_of_two_domains_is_excess() -> None:
    old, young = domain("z", EARLY), domain("a", LATE)
    found = between(old, young)
    assert (found.present, found.release, found.create, found.lost) == ({KEY: old}, (young,), (), ())


def test_of_two_domains_of_one_second_one_is_excess() -> None:
    first, second = domain("a"), domain("b")
    assert between(first, second).release == (second,)


def test_a_terminating_domain_is_excess_beside_a_living_one() -> None:
    gone, living = domain("x", EARLY, terminating=True), domain("y", LATE)
    found = between(gone, living)
    assert (found.present, found.lost, found.release, found.create) == ({KEY: living}, (), (gone,), ())


def test_of_two_terminating_domains_one_is_lost() -> None:
    old, young = domain("x", EARLY, terminating=True), domain("y", LATE, terminating=True)
    found = between(old, young)
    assert (found.lost, found.release, found.create) == ((old,), (young,), ())


def test_keys_to_create_are_in_the_order_of_replicas() -> None:
    required = frozenset(SetDomainKey(replica, group) for replica in (10, 9, 2) for group in ("b", "a"))
    found = difference(required, ())
    assert found.create == tuple(SetDomainKey(replica, group) for replica in (2, 9, 10) for group in ("a", "b"))
