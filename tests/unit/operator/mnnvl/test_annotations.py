"""Annotations beyond Grove's tables: contradictions, parts that an update adds, hostile values, the default."""

import msgspec
import pytest
from gkm.api.grove import PodCliqueSet
from gkm.api.mnnvl_metadata import AUTO_MNNVL, MNNVL_GROUP
from gkm.api.network_settings import Network
from gkm_operator.mnnvl import dialect
from gkm_operator.mnnvl.gpu_requests import GPURequests
from gkm_operator.mnnvl.required import required_groups
from support.grove.objects import Json, clique, pod_clique_set, scaling_group
from support.grove.tables import refused, table
from support.grove.typed import GPUS, a_set, device_classes

ENABLED, DISABLED = {AUTO_MNNVL: "enabled"}, {AUTO_MNNVL: "disabled"}
ON = GPURequests(Network(auto_mnnvl_enabled=True))


def group(value: str) -> dict[str, str]:
    return {MNNVL_GROUP: value}


WORKERS, NONE = group("workers"), group("none")


@table(
    "given, refusal",
    [
        ("enabled and none on the set", a_set(annotations=ENABLED | NONE), "contradicts"),
        ("disabled and a group on the set", a_set(annotations=DISABLED | WORKERS), "contradicts"),
        ("disabled and a group on a clique", a_set(clique("a", annotations=WORKERS), annotations=DISABLED), "'a'"),
        (
            "disabled and a group on a scaling group",
            a_set(scaling_groups=[scaling_group("sg", "worker", annotations=WORKERS)], annotations=DISABLED),
            "scaling group 'sg'",
        ),
        ("enabled and a group on the set", a_set(annotations=ENABLED | WORKERS), ""),
        ("enabled, a clique withdraws", a_set(clique("a", annotations=NONE), annotations=ENABLED), ""),
        ("disabled and none", a_set(annotations=DISABLED | NONE), ""),
        ("disabled, a clique withdraws", a_set(clique("a", annotations=NONE), annotations=DISABLED), ""),
    ],
)
def test_annotations_that_contradict_each_other_are_refused(given: PodCliqueSet, refusal: str) -> None:
    assert refused(dialect.creation_problems(given, enabled=True), refusal)


@table(
    "given, groups",
    [
        ("enabled: one domain for all", a_set(clique("a"), clique("b"), annotations=ENABLED), {""}),
        (
            "a clique has its own",
            a_set(clique("a"), clique("b", annotations=WORKERS), annotations=ENABLED),
            {"", "workers"},
        ),
        ("a clique withdraws", a_set(clique("a"), clique("b", annotations=NONE), annotations=ENABLED), {""}),
        ("all cliques withdraw", a_set(clique("a", annotations=NONE), annotations=ENABLED), set()),
        ("the group of the set names the domain", a_set(annotations=ENABLED | WORKERS), {"workers"}),
        ("enabled without GPUs, as the seed has it", a_set(clique("a", 0), annotations=ENABLED), {""}),
        ("enabled without GPUs, groups named", a_set(clique("a", 0, annotations=WORKERS), annotations=ENABLED), set()),
    ],
)
def test_both_dialects_in_one_set(given: PodCliqueSet, groups: set[str]) -> None:
    assert not list(dialect.creation_problems(given, enabled=True))
    assert required_groups(given, GPUS) == groups


def test_all_parts_may_have_null_annotations() -> None:
    document = pod_clique_set(scaling_groups=[scaling_group("sg", "worker")])
    template = document["spec"]["template"]
    for part in (document["metadata"], template["cliques"][0], template["podCliqueScalingGroups"][0]):
        part["annotations"] = None
    given = msgspec.convert(document, PodCliqueSet)
    assert not dialect.enrolls(given)
    assert not list(dialect.creation_problems(given, enabled=False))


@table(
    "added, enabled, reason",
    [
        ("a clique in a valid group", clique("new", annotations=WORKERS), True, ""),
        ("a clique in a group, feature disabled", clique("new", annotations=WORKERS), False, "MNNVL is not enabled"),
        ("a clique that withdraws, feature disabled", clique("new", annotations=NONE), False, ""),
        ("a clique with an invalid group", clique("new", annotations=group("My_Group")), True, "not a valid DNS-1123"),
        ("a clique without annotations", clique("new"), False, ""),
    ],
)
def test_a_part_that_an_update_adds_follows_the_rules_of_creation(added: Json, enabled: bool, reason: str) -> None:  # noqa: FBT001 -- a row
    problems = dialect.update_problems(a_set(clique("old")), a_set(clique("old"), added), enabled=enabled)
    assert refused(problems, reason)


def test_an_update_does_not_fail_for_values_that_were_there() -> None:
    before = a_set(clique("a", annotations=group("My_Group")), annotations={AUTO_MNNVL: "yes"})
    after = a_set(clique("a", annotations=group("My_Group")), annotations={AUTO_MNNVL: "yes"}, replicas=3)
    assert not list(dialect.update_problems(before, after, enabled=False))


def test_an_update_may_remove_an_annotated_part() -> None:
    assert not list(
        dialect.update_problems(a_set(clique("a"), clique("b", annotations=WORKERS)), a_set(clique("a")), enabled=True)
    )


def test_auto_mnnvl_of_a_clique_has_no_effect_but_a_warning() -> None:
    given = a_set(clique("a", annotations={AUTO_MNNVL: "yes"}))
    assert not dialect.enrolls(given)
    assert not list(dialect.creation_problems(given, enabled=False))
    assert not list(dialect.update_problems(given, a_set(clique("a")), enabled=True))
    assert refused(dialect.warnings(given, GPUS), "has no effect on clique 'a'")


@table(
    "given, warning",
    [
        ("enrolled without GPUs", a_set(clique("a", 0), annotations=ENABLED), "requests GPUs"),
        ("enrolled with GPUs", a_set(annotations=ENABLED), ""),
        ("not enrolled, without GPUs", a_set(clique("a", 0)), ""),
        ("a CPU clique beside GPUs", a_set(clique("a"), clique("b", 0, annotations=WORKERS)), ""),
    ],
)
def test_a_set_without_gpus_is_warned(given: PodCliqueSet, warning: str) -> None:
    assert refused(dialect.warnings(given, GPUS), warning)


@table(
    "given",
    [
        ("a group on the set", a_set(annotations=WORKERS)),
        ("none on the set", a_set(annotations=NONE)),
        ("a group on a clique", a_set(clique("a"), clique("b", annotations=WORKERS))),
        ("none on a scaling group", a_set(scaling_groups=[scaling_group("sg", "worker", annotations=NONE)])),
        ("an empty auto-mnnvl", a_set(annotations={AUTO_MNNVL: ""})),
    ],
)
def test_a_set_that_has_decided_gets_no_default(given: PodCliqueSet) -> None:
    assert dialect.default_annotation(given, ON, operation="CREATE") is None


def test_the_dialect_mnnvl_group_has_no_default() -> None:
    gpus = GPURequests(Network(auto_mnnvl_enabled=True, mnnvl_dialect="mnnvl-group"))
    assert dialect.default_annotation(a_set(), gpus, operation="CREATE") is None


def test_gpus_by_claims_alone_enroll() -> None:
    pod = {"containers": [{"name": "main", "resources": {"claims": [{"name": "gpu"}]}}]}
    pod |= {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu-template"}]}
    given = a_set(clique("a") | {"spec": {"podSpec": pod}})
    assert dialect.default_annotation(given, ON, device_classes, operation="CREATE") == "enabled"
    assert dialect.default_annotation(given, ON, operation="CREATE") is None


@pytest.mark.parametrize(("length", "reason"), [(63, ""), (64, "at most 63 characters")])
def test_a_set_name_that_no_label_can_contain_is_refused(length: int, reason: str) -> None:
    assert refused(dialect.creation_problems(a_set(name="a" * length, annotations=ENABLED), enabled=True), reason)
    assert not list(dialect.creation_problems(a_set(name="a" * length), enabled=True))


def test_messages_are_short_printable_and_in_the_order_of_the_set() -> None:
    bad = group("\x1b[2J" + "A" * 100_000)
    cliques = [clique(f"{'n' * 100_000}-{index}\u202e", annotations=bad) for index in range(3)]
    given = a_set(*cliques, annotations={AUTO_MNNVL: "\x07" * 100_000})
    first, *others = dialect.creation_problems(given, enabled=True)
    assert AUTO_MNNVL in first
    assert len(others) == len(cliques)
    assert all(len(message) < 500 and message.isprintable() for message in (first, *others))


def test_two_long_names_with_one_beginning_are_two_parts() -> None:
    start = "n" * 500
    before = a_set(clique(f"{start}-a", annotations=WORKERS), clique(f"{start}-b"))
    after = a_set(clique(f"{start}-a"), clique(f"{start}-b", annotations=WORKERS))
    assert len(list(dialect.update_problems(before, after, enabled=True))) == 2
