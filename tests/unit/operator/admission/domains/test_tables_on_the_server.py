"""Grove's tables of cases that concern webhooks, through the HTTPS server: P1-A, B, C, P2-C, D, H and I of grove-04."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import pytest
from gkm.api.mnnvl_metadata import AUTO_MNNVL, MNNVL_GROUP, PART_OF, REPLICA_INDEX
from gkm_operator.mnnvl.required import SetDomainKey
from support.grove.objects import NAMESPACE, Json, clique, container, pod_clique_set, scaling_group
from support.grove.tables import table
from support.operator.served_workloads import ServedWorkloads, served_workloads
from support.operator.workloads import OFF, ON, Answer, review

DEFAULT, VALIDATE = "/podcliquesets/default", "/podcliquesets/validate"
OTHER = {"other.example/x": "y"}
Annotations = Mapping[str, str] | None
Sites = Mapping[str, ServedWorkloads]


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    with ExitStack() as stack:
        by_switch = (("on", ON), ("off", OFF))
        served = ((switch, served_workloads(tmp_path_factory.mktemp(switch), found)) for switch, found in by_switch)
        yield {switch: stack.enter_context(one) for switch, one in served}


def auto(value: str) -> dict[str, str]:
    return {AUTO_MNNVL: value}


def group(value: str) -> dict[str, str]:
    return {MNNVL_GROUP: value}


def a_set(annotations: Annotations, *, gpus: bool = True) -> Json:
    return pod_clique_set("test-pcs", clique("worker", 8 if gpus else 0), annotations=annotations)


def refused(given: Answer, reason: str) -> bool:
    """Return whether a request is admitted for the reason "", and refused with the reason otherwise."""
    return reason in given.message and not given.allowed if reason else given.allowed


@table(
    "operation, switch, gpus, before, after",
    [
        ("feature enabled + GPU + no annotation -> add enabled", "CREATE", "on", True, None, "enabled"),
        ("feature enabled + GPU + existing disabled", "CREATE", "on", True, "disabled", "disabled"),
        ("feature enabled + GPU + existing enabled", "CREATE", "on", True, "enabled", "enabled"),
        ("feature enabled + no GPU -> no annotation", "CREATE", "on", False, None, None),
        ("feature disabled + GPU -> no annotation", "CREATE", "off", True, None, None),
        ("feature disabled + no GPU -> no annotation", "CREATE", "off", False, None, None),
        ("update: legacy without annotation + enabled + GPU", "UPDATE", "on", True, None, None),
        ("update: legacy without annotation + disabled + GPU", "UPDATE", "off", True, None, None),
        ("update: existing enabled + feature enabled", "UPDATE", "on", True, "enabled", "enabled"),
        ("update: existing disabled + feature enabled", "UPDATE", "on", True, "disabled", "disabled"),
        ("update: legacy without annotation + enabled + no GPU", "UPDATE", "on", False, None, None),
    ],
)
def test_p1_a_default(
    sites: Sites,
    *,
    operation: str,
    switch: str,
    gpus: bool,
    before: str | None,
    after: str | None,
) -> None:
    given = a_set(auto(before) if before is not None else None, gpus=gpus)
    found = sites[switch].ask(DEFAULT, given, given if operation == "UPDATE" else None)
    assert found.allowed
    assert found.annotations.get(AUTO_MNNVL) == after
    assert found.changed == (before != after)


@table(
    "annotation, switch, reason",
    [
        ("enabled, on", auto("enabled"), "on", ""),
        ("enabled, off", auto("enabled"), "off", "MNNVL is not enabled"),
        ("disabled, off", auto("disabled"), "off", ""),
        ("disabled, on", auto("disabled"), "on", ""),
        ("no annotation, off", {}, "off", ""),
        ("no annotation, on", {}, "on", ""),
        ("no annotations at all", None, "off", ""),
        ("true", auto("true"), "on", "must be"),
        ("false", auto("false"), "on", "must be"),
        ("empty", auto(""), "on", "must be"),
        ("yes", auto("yes"), "on", "must be"),
        ("ENABLED", auto("ENABLED"), "on", "must be"),
        ("invalid, off: the value comes first", auto("invalid"), "off", "must be"),
    ],
)
def test_p1_b_creation(sites: Sites, annotation: Annotations, switch: str, reason: str) -> None:
    assert refused(sites[switch].ask(VALIDATE, a_set(annotation)), reason)


@table(
    "old, new, reason",
    [
        ("no annotation on both", None, None, ""),
        ("unchanged enabled", auto("enabled"), auto("enabled"), ""),
        ("unchanged disabled", auto("disabled"), auto("disabled"), ""),
        ("added", None, auto("enabled"), "cannot be added"),
        ("removed", auto("enabled"), None, "cannot be removed"),
        ("enabled to disabled", auto("enabled"), auto("disabled"), "immutable"),
        ("disabled to enabled", auto("disabled"), auto("enabled"), "immutable"),
        ("another changed", auto("enabled") | {"other": "old"}, auto("enabled") | {"other": "new"}, ""),
    ],
)
def test_p1_c_update(sites: Sites, old: Annotations, new: Annotations, reason: str) -> None:
    assert refused(sites["on"].ask(VALIDATE, a_set(new), a_set(old)), reason)


@pytest.mark.parametrize("switch", ["on", "off"])
def test_p1_c_a_legacy_set_is_defaulted_and_validated_without_a_deadlock(sites: Sites, switch: str) -> None:
    legacy = a_set(None)
    defaulted = sites[switch].ask(DEFAULT, legacy, legacy)
    assert not defaulted.changed
    assert sites[switch].ask(VALIDATE, defaulted.object, legacy).allowed


def at(level: str, annotations: Annotations, *more: Json) -> Json:
    """Return a set with annotations on a level: the set, its clique `worker`, or its scaling group."""
    worker = clique("worker", annotations=annotations if level == "clique" else None)
    groups = [scaling_group("sg", "worker", annotations=annotations if level == "scaling group" else None)]
    return pod_clique_set(
        "test-pcs", worker, *more, annotations=annotations if level == "set" else None, scaling_groups=groups
    )


LEVELS = pytest.mark.parametrize("level", ["set", "clique", "scaling group"])


@LEVELS
@table(
    "annotation, switch, reason",
    [
        ("a group, on", group("training"), "on", ""),
        ("a group, off", group("training"), "off", "MNNVL is not enabled"),
        ("none, on", group("none"), "on", ""),
        ("none, off", group("none"), "off", ""),
        ("no annotation, on", None, "on", ""),
        ("no annotation, off", {}, "off", ""),
        ("uppercase", group("INVALID"), "on", "not a valid DNS-1123 label"),
        ("a hyphen first", group("-bad"), "on", "not a valid DNS-1123 label"),
        ("with spaces", group("with spaces"), "on", "not a valid DNS-1123 label"),
        ("empty", group(""), "on", "must not be empty"),
    ],
)
def test_p2_c_creation(sites: Sites, level: str, annotation: Annotations, switch: str, reason: str) -> None:
    assert refused(sites[switch].ask(VALIDATE, at(level, annotation)), reason)


@table(
    "cliques, reason",
    [
        (
            "one valid, one invalid",
            [clique("a", annotations=group("x")), clique("b", annotations=group("X"))],
            "DNS-1123",
        ),
        ("all valid", [clique("a", annotations=group("x")), clique("b", annotations=group("y"))], ""),
        ("without GPUs", [clique("a", 0, annotations=group("x"))], ""),
        ("GPUs with, others without", [clique("a", annotations=group("x")), clique("b", 0)], ""),
        (
            "GPUs with, others none",
            [clique("a", annotations=group("x")), clique("b", 0, annotations=group("none"))],
            "",
        ),
    ],
)
def test_p2_c_several_cliques(sites: Sites, cliques: list[Json], reason: str) -> None:
    assert refused(sites["on"].ask(VALIDATE, pod_clique_set("test-pcs", *cliques)), reason)


@LEVELS
@table(
    "old, new, reason",
    [
        ("unchanged", group("a"), group("a"), ""),
        ("added", None, group("a"), "cannot be added"),
        ("removed", group("a"), None, "cannot be removed"),
        ("changed", group("a"), group("b"), "immutable"),
        ("another changed", group("a") | OTHER, group("a"), ""),
    ],
)
def test_p2_d_update(sites: Sites, level: str, old: Annotations, new: Annotations, reason: str) -> None:
    assert refused(sites["on"].ask(VALIDATE, at(level, new), at(level, old)), reason)


@table("changed, reason", [("unchanged by name", "b", ""), ("one changed by name", "x", "immutable")])
def test_p2_d_reordered_cliques(sites: Sites, changed: str, reason: str) -> None:
    old = pod_clique_set("p", clique("one", annotations=group("a")), clique("two", annotations=group("b")))
    new = pod_clique_set("p", clique("two", annotations=group(changed)), clique("one", annotations=group("a")))
    assert refused(sites["on"].ask(VALIDATE, new, old), reason)


def pod_clique(made: Json, template: str, replica: int) -> Json:
    """Return a PodClique as Grove makes it from a template of a set."""
    owner = made["metadata"]["name"]
    found = next(one for one in made["spec"]["template"]["cliques"] if one["name"] == template)
    metadata = {
        "name": f"{owner}-{replica}-{template}",
        "namespace": NAMESPACE,
        "labels": {PART_OF: owner, REPLICA_INDEX: str(replica)},
    }
    return {"apiVersion": "grove.io/v1alpha1", "kind": "PodClique", "metadata": metadata, "spec": found["spec"]}


MIXED = clique("c", containers=[container("gpu", 8), container("cpu")])
IN_INIT = clique("c", containers=[container("cpu")], initContainers=[container("init", 8)])


@table(
    "annotations, template, replica, domain, claims",
    [
        ("enabled + GPU", group("default"), clique("c"), 0, "coyote-0-default", ["main"]),
        ("not enabled", None, clique("c"), 0, "", []),
        ("enabled, no GPU", group("default"), clique("c", 0), 0, "", []),
        ("mixed containers", group("default"), MIXED, 0, "coyote-0-default", ["gpu"]),
        ("GPU in an init container", group("default"), IN_INIT, 0, "coyote-0-default", ["init"]),
        ("none", group("none"), clique("c"), 0, "", []),
        ("group workers on the set", group("workers"), clique("c"), 0, "coyote-0-workers", ["main"]),
        (
            "a clique overrides",
            group("default"),
            clique("c", annotations=group("encoders")),
            0,
            "coyote-0-encoders",
            ["main"],
        ),
        ("a clique only", None, clique("c", annotations=group("training")), 0, "coyote-0-training", ["main"]),
        ("another replica", group("workers"), clique("c"), 1, "coyote-1-workers", ["main"]),
        ("auto-mnnvl", auto("enabled"), clique("c"), 1, "coyote-1", ["main"]),
        ("auto-mnnvl disabled", auto("disabled"), clique("c"), 0, "", []),
    ],
)
def test_p2_h_injection(
    sites: Sites,
    *,
    annotations: Annotations,
    template: Json,
    replica: int,
    domain: str,
    claims: list[str],
) -> None:
    site = sites["on"]
    made = pod_clique_set("coyote", template, annotations=annotations, replicas=2)
    groups = ["", "default", "workers", "encoders", "training"]
    try:
        site.behind.create_set(made, *(SetDomainKey(index, name) for index in range(2) for name in groups))
        site.behind.observe()
        found = site.ask("/podcliques", pod_clique(made, "c", replica))
        assert found.allowed
        assert found.claims() == {name: ["mnnvl-claim"] for name in claims}
        assert found.templates() == ({"mnnvl-claim": domain} if domain else {})
        assert found.labels.get("gkm.io/compute-domain", "") == domain
    finally:
        site.behind.clear()


@table(
    "on_set, on_template, expected",
    [
        ("default on the set", group("default"), None, group("default")),
        ("none on the set", group("none"), None, group("none")),
        ("nothing", None, None, {}),
        ("others only", OTHER, None, {}),
        ("training on the template, default on the set", group("default"), group("training"), group("training")),
        ("workers on the template", None, group("workers"), group("workers")),
        ("none on the template, default on the set", group("default"), group("none"), group("none")),
        ("auto-mnnvl", auto("enabled"), None, auto("enabled")),
    ],
)
def test_p2_i_annotations_of_scaling_groups(
    sites: Sites, on_set: Annotations, on_template: Annotations, expected: Annotations
) -> None:
    site = sites["on"]
    groups = [scaling_group("sg", "worker", annotations=on_template)]
    made = pod_clique_set("owner", clique("worker"), annotations=on_set, scaling_groups=groups)
    metadata = {"name": "owner-0-sg", "namespace": NAMESPACE, "labels": {PART_OF: "owner", REPLICA_INDEX: "0"}}
    given = {"metadata": metadata, "spec": {"replicas": 1, "cliqueNames": ["worker"]}}
    try:
        site.behind.create_set(made, *(SetDomainKey(0, name) for name in ("", "default", "training", "workers")))
        site.behind.observe()
        found = site.ask("/podcliquescalinggroups", given)
        assert found.allowed
        assert found.annotations == expected
        again = site.ask("/podcliquescalinggroups", found.object, given)
        assert not again.changed
    finally:
        site.behind.clear()


def test_a_path_reviews_its_own_kind_only(sites: Sites) -> None:
    webhook = sites["on"].webhook
    status, body = webhook.ask("POST", "/pods", review("/podcliques", a_set(None)))
    assert (status, body) == (400, b"this path reviews Pod only\n")
