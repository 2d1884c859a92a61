"""The rows P2-A … P2-I of Grove's own tests (main, v0.1.0-alpha.9 and later): the contract of `grove.io/mnnvl-group`.

One test a table; the ids are the names of Grove's cases, after the level of the annotation where a table holds for
several. P2-E is P1-E, and P2's rows of P1-H stand there (test_table_auto_mnnvl.py). Where GKM decides by other means:
- P2-A's "absent" and "withdrawn" are one result for a clique: it is in no domain.
- P2-F and P2-G compare keys (replica, group) from labels; Grove compares names.
- P2-G: when nothing is required, GKM does release everything; Grove's Sync never arrives there (scale to zero).
- P2-I: GKM adds the annotation in admission, Grove when it makes the scaling group.
"""

from collections.abc import Callable

import pytest
from gkm.api.grove import PodCliqueSet
from gkm.api.mnnvl_metadata import AUTO_MNNVL, MNNVL_GROUP
from gkm_operator.mnnvl import dialect, required
from gkm_operator.mnnvl.injection import inject
from gkm_operator.mnnvl.required import SetDomainKey, difference, domain_of, key_of, required_domains, required_groups
from support.grove.json_patch import patched
from support.grove.objects import Json, clique, container, scaling_group
from support.grove.tables import refused, table
from support.grove.typed import GPUS, a_compute_domain, a_pod_clique, a_pod_spec, a_set

NOT_A_LABEL = "is not a valid DNS-1123 label"


def group(value: str | None, **others: str) -> dict[str, str]:
    return others | ({} if value is None else {MNNVL_GROUP: value})


@table(
    "annotations, found",
    [
        ("nil", None, None),
        ("{}", {}, None),
        ("unrelated only", {"team": "a"}, None),
        ("training", group("training"), "training"),
        ("default", group("default"), "default"),
        ("none", group("none"), None),
    ],
)
def test_p2_a_one_layer(annotations: dict[str, str] | None, found: str | None) -> None:
    given = a_set(annotations=annotations)
    assert dialect.group_of(given, given.cliques[0], None) == found


@table(
    "layers, found",
    [
        ("PCLQ has group — parent ignored", [group("pclq-group"), group("parent-group")], "pclq-group"),
        ("PCLQ absent — falls back to parent group", [{}, group("parent-group")], "parent-group"),
        ("PCLQ has none — opt-out", [group("none"), group("parent-group")], None),
        ("both absent", [{}, {}], None),
        ("nil layers", [None, None], None),
        ("PCLQ has group — nil parent is safe", [group("pclq-group"), None], "pclq-group"),
        ("PCLQ empty — nil parent is safe", [{}, None], None),
    ],
)
@pytest.mark.parametrize("parent", ["PodCliqueSet", "scaling group"])
def test_p2_a_layers(layers: list[dict[str, str] | None], found: str | None, parent: str) -> None:
    worker = clique("worker", annotations=layers[0])
    if parent == "PodCliqueSet":
        given = a_set(worker, annotations=layers[1])
    else:
        given = a_set(worker, scaling_groups=[scaling_group("sg", "worker", annotations=layers[1])])
    ((template, within),) = given.memberships()
    assert dialect.group_of(given, template, within) == found


OK = ["none", "training", "my-workers", "a", "group1", "1group", "a" * 63]
BAD = ["", "a" * 64, "Training", "my_group", "my.group", "my group", "-workers", "workers-"]


@table("name, valid", [(repr(name), name, name in OK) for name in [*OK, *BAD]])
def test_p2_b_group_name(name: str, valid: bool) -> None:  # noqa: FBT001 -- a row
    assert (dialect.invalid_group(name) is None) is valid


def on_set(annotations: dict[str, str] | None) -> PodCliqueSet:
    return a_set(annotations=annotations)


def on_clique(annotations: dict[str, str] | None) -> PodCliqueSet:
    return a_set(clique("other"), clique("worker", annotations=annotations))


def on_scaling_group(annotations: dict[str, str] | None) -> PodCliqueSet:
    return a_set(scaling_groups=[scaling_group("other"), scaling_group("sg", "worker", annotations=annotations)])


LEVELS = pytest.mark.parametrize(
    "level", [on_set, on_clique, on_scaling_group], ids=["PCS level", "clique level", "PCSG level"]
)
Level = Callable[[dict[str, str] | None], PodCliqueSet]


@LEVELS
@table(
    "annotations, enabled, reason",
    [
        ("valid mnnvl-group + feature enabled", group("training"), True, ""),
        ("valid mnnvl-group + feature disabled", group("training"), False, "MNNVL is not enabled"),
        ("'none' + feature enabled", group("none"), True, ""),
        ("'none' + feature disabled", group("none"), False, ""),
        ("no annotation, feature enabled", {}, True, ""),
        ("no annotation, feature disabled", {}, False, ""),
        ("without annotations", None, True, ""),
        ("invalid value (uppercase)", group("INVALID"), True, NOT_A_LABEL),
        ("invalid value (-bad)", group("-bad"), True, NOT_A_LABEL),
        ("invalid value (with spaces)", group("with spaces"), True, NOT_A_LABEL),
        ("invalid value (empty)", group(""), True, "must not be empty"),
    ],
)
def test_p2_c_create(level: Level, annotations: dict[str, str] | None, enabled: bool, reason: str) -> None:  # noqa: FBT001 -- a row
    assert refused(dialect.creation_problems(level(annotations), enabled=enabled), reason)


@table(
    "cliques, reason",
    [
        (
            "multiple cliques, one valid one invalid",
            [clique("a", annotations=group("training")), clique("b", annotations=group("INVALID"))],
            NOT_A_LABEL,
        ),
        (
            "multiple cliques all valid",
            [clique("a", annotations=group("training")), clique("b", annotations=group("encoders"))],
            "",
        ),
        ("non-GPU clique with mnnvl-group", [clique("cpu", 0, annotations=group("training"))], ""),
        ("GPU clique with mnnvl-group", [clique("gpu", 8, annotations=group("training"))], ""),
        ("non-GPU clique without", [clique("cpu", 0)], ""),
        ("non-GPU clique with none", [clique("cpu", 0, annotations=group("none"))], ""),
    ],
)
def test_p2_c_create_several_cliques(cliques: list[Json], reason: str) -> None:
    assert refused(dialect.creation_problems(a_set(*cliques), enabled=True), reason)


@LEVELS
@table(
    "before, after, reason",
    [
        ("unchanged", group("a"), group("a"), ""),
        ("added", {}, group("a"), "cannot be added"),
        ("removed", group("a"), {}, "cannot be removed"),
        ("changed", group("a"), group("b"), "immutable"),
        ("changed to none", group("a"), group("none"), "immutable"),
        ("other annotation changed", group("a", other="old"), group("a", other="new"), ""),
    ],
)
def test_p2_d_update(level: Level, before: dict[str, str], after: dict[str, str], reason: str) -> None:
    assert refused(dialect.update_problems(level(before), level(after), enabled=True), reason)


@table(
    "names, changed, reason",
    [
        ("two cliques reordered, annotations unchanged per name", "ba", "a", ""),
        ("reordered and one changed by name", "ba", "other", "immutable"),
        ("not reordered", "ab", "a", ""),
    ],
)
@pytest.mark.parametrize("kind", ["clique", "scaling group"])
def test_p2_d_update_in_another_order(kind: str, names: str, changed: str, reason: str) -> None:
    def made(order: str, **groups: str) -> PodCliqueSet:
        if kind == "clique":
            return a_set(*(clique(name, annotations=group(groups[name])) for name in order))
        return a_set(scaling_groups=[scaling_group(name, annotations=group(groups[name])) for name in order])

    problems = dialect.update_problems(made("ab", a="a", b="b"), made(names, a=changed, b="b"), enabled=True)
    assert refused(problems, reason)


TWO = [clique("worker", annotations=group("workers")), clique("encoder", annotations=group("encoders"))]


@table(
    "given, groups",
    [
        ("PCS group default, 2 replicas", a_set(annotations=group("default"), replicas=2), {"default"}),
        ("PCS group workers, 2 replicas", a_set(annotations=group("workers"), replicas=2), {"workers"}),
        ("clique-level groups — two distinct GPU groups", a_set(*TWO, replicas=2), {"workers", "encoders"}),
        (
            "PCSG config group propagates to clique",
            a_set(replicas=2, scaling_groups=[scaling_group("sg", "worker", annotations=group("training"))]),
            {"training"},
        ),
        (
            "PCS default + clique named group",
            a_set(clique("leader"), TWO[0], annotations=group("default"), replicas=2),
            {"default", "workers"},
        ),
        ("no annotations", a_set(replicas=2), set()),
        ("none", a_set(annotations=group("none"), replicas=2), set()),
        (
            "PCS group set but only CPU cliques — no orphaned CD",
            a_set(clique("cpu", 0), annotations=group("default"), replicas=2),
            set(),
        ),
    ],
)
def test_p2_f_required(given: PodCliqueSet, groups: set[str]) -> None:
    assert required_groups(given, GPUS) == groups
    assert required_domains(given, GPUS) == {SetDomainKey(replica, each) for replica in (0, 1) for each in groups}


def keys(names: str) -> frozenset[SetDomainKey]:
    """Read `0-a 1-a`: replica and group."""
    return frozenset(SetDomainKey(int(name[0]), name[2:]) for name in names.split())


@table(
    "required, present, created, released",
    [
        ("exact match", "0-a 1-a", "0-a 1-a", "", ""),
        ("scale out", "0-a 1-a 2-a", "0-a", "1-a 2-a", ""),
        ("scale in", "0-a", "0-a 1-a 2-a", "", "1-a 2-a"),
        ("group rename", "0-b 1-b", "0-a 1-a", "0-b 1-b", "0-a 1-a"),
        ("all new", "0-a 1-a", "", "0-a 1-a", ""),
        ("all excess — nothing required", "", "0-a 1-a", "", "0-a 1-a"),
    ],
)
def test_p2_g_triage(required: str, present: str, created: str, released: str) -> None:
    domains = [a_compute_domain(f"test-pcs-{name}", name[0], name[2:]) for name in present.split()]
    found = difference(keys(required), domains)
    assert found.create == tuple(sorted(keys(created)))
    assert {key_of(domain) for domain in found.release} == keys(released)
    assert found.present.keys() == keys(required) - keys(created)
    assert not found.lost


GPU_POD, CPU_POD = {"containers": [container("main", 8)]}, {"containers": [container("main")]}
MIXED_POD = {"containers": [container("main", 8), container("sidecar")]}
INIT_POD = {"initContainers": [container("init", 1)], "containers": [container("main")]}


@table(
    "on_the_set, on_the_clique, pod, claiming, template",
    [
        ("enabled+GPU", "default", None, GPU_POD, {"main"}, "coyote-0-default"),
        ("not enabled", None, None, GPU_POD, set(), ""),
        ("enabled, no GPU", "default", None, CPU_POD, set(), ""),
        ("mixed GPU/non-GPU", "default", None, MIXED_POD, {"main"}, "coyote-0-default"),
        ("GPU in init container", "default", None, INIT_POD, {"init"}, "coyote-0-default"),
        ("none", "none", None, GPU_POD, set(), ""),
        ("group workers on PCS", "workers", None, GPU_POD, {"main"}, "coyote-0-workers"),
        ("clique encoders overrides PCS default", "default", "encoders", GPU_POD, {"main"}, "coyote-0-encoders"),
        ("clique only training", None, "training", GPU_POD, {"main"}, "coyote-0-training"),
    ],
)
@pytest.mark.parametrize("path", ["PCS path", "PCSG path"])
def test_p2_h_injection(  # noqa: PLR0917 -- a row
    on_the_set: str | None, on_the_clique: str | None, pod: Json, claiming: set[str], template: str, path: str
) -> None:
    within = "sg" if path == "PCSG path" else ""
    worker = clique("worker", annotations=group(on_the_clique)) | {"spec": {"podSpec": pod}}
    groups = [scaling_group("sg", "worker")] if within else []
    given = a_set(worker, name="coyote", annotations=group(on_the_set), scaling_groups=groups)
    key = domain_of(given, a_pod_clique("coyote", "0", "worker", within))
    changed = pod
    if key is not None:
        name = required.domain_name("coyote", key.replica, key.group)
        changed = patched(pod, inject(a_pod_spec(**pod), name, "", GPUS).operations)
    templates = [claim["resourceClaimTemplateName"] for claim in changed.get("resourceClaims", [])]
    assert templates == ([template] if template else [])
    everything = changed.get("initContainers", []) + changed["containers"]
    assert {each["name"] for each in everything if "claims" in each["resources"]} == claiming


@table(
    "on_the_set, on_the_config, expected",
    [
        ("PCS default, none on config", group("default"), None, group("default")),
        ("PCS none", group("none"), None, group("none")),
        ("nothing", None, None, {}),
        ("non-MNNVL PCS annotations", {"team": "a"}, None, {}),
        ("config training + PCS default", group("default"), group("training"), group("training")),
        ("config workers, PCS absent", None, group("workers"), group("workers")),
        ("config none + PCS default", group("default"), group("none"), group("none")),
        ("P1: auto-mnnvl of the PCS", {AUTO_MNNVL: "enabled"}, None, {AUTO_MNNVL: "enabled"}),
    ],
)
def test_p2_i_propagation(
    on_the_set: dict[str, str] | None, on_the_config: dict[str, str] | None, expected: dict[str, str]
) -> None:
    given = a_set(annotations=on_the_set, scaling_groups=[scaling_group("sg", "worker", annotations=on_the_config)])
    assert dialect.scaling_group_annotations(given, "sg") == expected
