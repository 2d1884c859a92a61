"""The rows P1-A … P1-H of Grove's own tests (v0.1.0-alpha.7): the contract of `grove.io/auto-mnnvl`.

One test a table; the ids are the names of Grove's cases. Where GKM decides by other means, the rows hold for those:
- P1-C: a set from before the feature passes both webhooks, mutating first.
- P1-F and P1-G: Grove parses the replica out of a ComputeDomain's name and fails on a name that it cannot parse. GKM
  reads labels only. A domain whose labels state no replica is excess, not an error: otherwise one such object would
  stop the release of all others.
"""

from collections.abc import Iterable

import msgspec
import pytest
from gkm.api.grove import PodCliqueSet
from gkm.api.mnnvl_metadata import AUTO_MNNVL
from gkm.api.network_settings import Network
from gkm.api.pod_specs import PodSpec
from gkm_operator.mnnvl import dialect, required
from gkm_operator.mnnvl.gpu_requests import GPURequests
from gkm_operator.mnnvl.injection import inject
from gkm_operator.mnnvl.required import difference, domain_of, required_domains
from support.grove.json_patch import patched
from support.grove.objects import GPU, Json, clique, container
from support.grove.tables import refused, table
from support.grove.typed import GPUS, a_compute_domain, a_pod_clique, a_pod_spec, a_set

ON, OFF = GPURequests(Network(auto_mnnvl_enabled=True)), GPURequests(Network(auto_mnnvl_enabled=False))
MUST_BE = "must be"


def auto(value: str | None, **others: str) -> dict[str, str]:
    return others | ({} if value is None else {AUTO_MNNVL: value})


@table(
    "operation, gpus, requests, before, after",
    [
        ("feature enabled + GPU + no annotation -> add enabled", "CREATE", ON, 8, None, "enabled"),
        ("feature enabled + GPU + existing disabled -> no change", "CREATE", ON, 8, "disabled", "disabled"),
        ("feature enabled + GPU + existing enabled -> no change", "CREATE", ON, 8, "enabled", "enabled"),
        ("feature enabled + no GPU -> no annotation", "CREATE", ON, 0, None, None),
        ("feature disabled + GPU -> no annotation", "CREATE", OFF, 8, None, None),
        ("feature disabled + no GPU -> no annotation", "CREATE", OFF, 0, None, None),
        ("update: legacy PCS without annotation + feature enabled + GPU -> NOT added", "UPDATE", ON, 8, None, None),
        ("update: legacy PCS without annotation + feature disabled + GPU -> NOT added", "UPDATE", OFF, 8, None, None),
        (
            "update: PCS with existing enabled annotation + feature enabled -> preserved",
            "UPDATE",
            ON,
            8,
            "enabled",
            "enabled",
        ),
        (
            "update: PCS with existing disabled annotation + feature enabled -> preserved",
            "UPDATE",
            ON,
            8,
            "disabled",
            "disabled",
        ),
        ("update: legacy PCS without annotation + feature enabled + no GPU -> NOT added", "UPDATE", ON, 0, None, None),
    ],
)
def test_p1_a_mutating(operation: str, gpus: GPURequests, requests: int, before: str | None, after: str | None) -> None:
    given = a_set(clique("worker", requests), annotations=auto(before))
    added = dialect.default_annotation(given, gpus, operation=operation)
    assert (added, before) in {(None, after), (after, None)}


@table(
    "annotations, enabled, reason",
    [
        ("annotation enabled + feature enabled", auto("enabled"), True, ""),
        ("annotation enabled + feature disabled", auto("enabled"), False, "MNNVL is not enabled"),
        ("annotation disabled + feature disabled", auto("disabled"), False, ""),
        ("annotation disabled + feature enabled", auto("disabled"), True, ""),
        ("no annotation + feature disabled", auto(None), False, ""),
        ("no annotation + feature enabled", auto(None), True, ""),
        ("nil annotations map", None, False, ""),
        ("invalid annotation value 'true'", auto("true"), True, MUST_BE),
        ("invalid annotation value 'false'", auto("false"), True, MUST_BE),
        ("invalid annotation value empty string", auto(""), True, MUST_BE),
        ("invalid annotation value 'yes'", auto("yes"), True, MUST_BE),
        ("invalid annotation value 'ENABLED' (wrong case)", auto("ENABLED"), True, MUST_BE),
        ("invalid annotation value with feature disabled (value validation first)", auto("invalid"), False, MUST_BE),
    ],
)
def test_p1_b_validating_on_create(annotations: dict[str, str] | None, enabled: bool, reason: str) -> None:  # noqa: FBT001 -- a row
    given = a_set(annotations=annotations)
    assert refused(dialect.creation_problems(given, enabled=enabled), reason)


@table(
    "before, after, reason",
    [
        ("no annotation on both", auto(None), auto(None), ""),
        ("annotation unchanged enabled", auto("enabled"), auto("enabled"), ""),
        ("annotation unchanged disabled", auto("disabled"), auto("disabled"), ""),
        ("annotation added", auto(None), auto("enabled"), "cannot be added"),
        ("annotation removed", auto("enabled"), auto(None), "cannot be removed"),
        ("annotation changed enabled to disabled", auto("enabled"), auto("disabled"), "immutable"),
        ("annotation changed disabled to enabled", auto("disabled"), auto("enabled"), "immutable"),
        ("other annotations changed but mnnvl unchanged", auto("enabled", o="old"), auto("enabled", o="new"), ""),
    ],
)
@pytest.mark.parametrize("enabled", [True, False], ids=["on", "off"])
def test_p1_c_validating_on_update(
    before: dict[str, str], after: dict[str, str], reason: str, *, enabled: bool
) -> None:
    problems = dialect.update_problems(a_set(annotations=before), a_set(annotations=after), enabled=enabled)
    assert refused(problems, reason)


@table(
    "gpus",
    [
        ("legacy PCS updated with MNNVL feature enabled -> no deadlock (mutate then validate)", ON),
        ("legacy PCS updated with MNNVL feature disabled -> no deadlock", OFF),
    ],
)
def test_p1_c_legacy_set_is_updated(gpus: GPURequests) -> None:
    before, after = a_set(replicas=1), a_set(replicas=2)
    assert dialect.default_annotation(after, gpus, operation="UPDATE") is None
    assert not list(dialect.update_problems(before, after, enabled=gpus.settings.auto_mnnvl_enabled))


@table(
    "annotations, enrolled",
    [
        ("nil", None, False),
        ("{}", {}, False),
        ("enabled", auto("enabled"), True),
        ("disabled", auto("disabled"), False),
        ("invalid", auto("invalid"), False),
        ("other annotations only", {"team": "a"}, False),
    ],
)
def test_p1_d_enabled(annotations: dict[str, str] | None, enrolled: bool) -> None:  # noqa: FBT001 -- a row
    given = a_set(annotations=annotations)
    assert dialect.enrolls(given) is enrolled
    assert bool(required_domains(given, GPUS)) is enrolled


def limited(**limits: object) -> Json:
    return {"name": "main", "resources": {"limits": limits}}


@table(
    "pod, found",
    [
        ("nil PodSpec", None, False),
        ("empty", {}, False),
        ("GPU in limits", {"containers": [limited(**{GPU: "8"})]}, True),
        ("GPU in requests only", {"containers": [{"name": "main", "resources": {"requests": {GPU: 8}}}]}, True),
        ("GPU in init container", {"initContainers": [limited(**{GPU: "1"})], "containers": [limited(cpu="1")]}, True),
        ("cpu only", {"containers": [limited(cpu="1")]}, False),
        ('quantity "0"', {"containers": [limited(**{GPU: "0"})]}, False),
        ("nil container", {"containers": [{"name": "main"}]}, False),
    ],
)
def test_p1_e_gpu_detection(pod: Json | None, found: bool) -> None:  # noqa: FBT001 -- a row
    assert GPUS.any(a_pod_spec(**pod) if pod is not None else PodSpec()) is found


@table(
    "cliques, found",
    [
        ("PCS with empty cliques", [], False),
        ("multiple cliques, one with GPU", [clique("a", 0), clique("b", 8), clique("c", 0)], True),
    ],
)
def test_p1_e_gpu_detection_in_sets(cliques: list[Json], found: bool) -> None:  # noqa: FBT001 -- a row
    metadata = {"name": "test-pcs"}
    given = msgspec.convert({"metadata": metadata, "spec": {"template": {"cliques": cliques}}}, PodCliqueSet)
    assert bool(GPUS.cliques(given)) is found


@table(
    "pod_clique_set, replica, name",
    [
        ("CD (mypcs,0)", "mypcs", 0, "mypcs-0"),
        ("CD (mypcs,5)", "mypcs", 5, "mypcs-5"),
        ("CD (other-pcs,3)", "other-pcs", 3, "other-pcs-3"),
        ("RCT (my-pcs,0)", "my-pcs", 0, "my-pcs-0"),
        ("RCT (workload,5)", "workload", 5, "workload-5"),
        ("RCT (my-long-pcs-name,10)", "my-long-pcs-name", 10, "my-long-pcs-name-10"),
    ],
)
def test_p1_f_names(pod_clique_set: str, replica: int, name: str) -> None:
    assert required.domain_name(pod_clique_set, replica, dialect.WHOLE_SET) == name


@table(
    "part_of, label, replica",
    [
        ("mypcs-0", "mypcs", "0", 0),
        ("mypcs-5", "mypcs", "5", 5),
        ("other-0 with pcs mypcs", "other", "0", None),
        ("mypcs-abc", "mypcs", "abc", None),
        ('""', "mypcs", "", None),
    ],
)
def test_p1_f_index_of_a_label(part_of: str, label: str, replica: int | None) -> None:
    key = domain_of(a_set(name="mypcs", annotations=auto("enabled")), a_pod_clique(part_of, label, "worker"))
    assert (key.replica if key else None) == replica


@table(
    "desired, replicas, released",
    [
        ("no excess - exact match", 3, "012", ""),
        ("scale in by 1", 2, "012", "2"),
        ("scale in by 2", 1, "012", "12"),
        ("scale to zero", 0, "01", "01"),
        ("no existing CDs", 3, "", ""),
        ("invalid CD name format", 2, ["invalid"], ["invalid"]),
    ],
)
def test_p1_g_excess(desired: int, replicas: Iterable[str], released: Iterable[str]) -> None:
    required = required_domains(a_set(replicas=desired, annotations=auto("enabled")), GPUS)
    found = difference(required, [a_compute_domain(f"pcs-{each}", each) for each in replicas])
    assert sorted(domain.metadata.name for domain in found.release) == [f"pcs-{each}" for each in released]


ONE = {"containers": [container("gpu-container", 8)]}


@table(
    "pod, domain, claiming, template",
    [
        ("nil PodSpec does not panic", {}, (0, ""), [], ""),
        ("injects claims into PodSpec with GPU container", ONE, (0, ""), ["gpu-container"], "my-pcs-0"),
        ("injects claims … with GPU container (P2)", ONE, (0, "default"), ["gpu-container"], "my-pcs-0-default"),
        ("named group — RCT name includes group (P2)", ONE, (1, "workers"), ["gpu-container"], "my-pcs-1-workers"),
        (
            "injects claims into init container with GPU",
            {"initContainers": [container("init-gpu", 1)], "containers": [container("main")]},
            (0, ""),
            ["init-gpu"],
            "my-pcs-0",
        ),
        (
            "only GPU containers get claim reference",
            {"containers": [container("gpu-container", 8), container("sidecar")]},
            (0, ""),
            ["gpu-container"],
            "my-pcs-0",
        ),
        (
            "multiple GPU containers all get claims",
            {"containers": [container("worker-1", 4), container("worker-2", 4)]},
            (0, ""),
            ["worker-1", "worker-2"],
            "my-pcs-0",
        ),
        ("no injection when no GPU containers", {"containers": [container("cpu-only")]}, (0, ""), [], ""),
    ],
)
def test_p1_h_injection(pod: Json, domain: tuple[int, str], claiming: list[str], template: str) -> None:
    made = injected(pod, required.domain_name("my-pcs", *domain))
    assert [claim["resourceClaimTemplateName"] for claim in made.get("resourceClaims", [])] == (
        [template] if template else []
    )
    for each in made.get("initContainers", []) + made.get("containers", []):
        claims = [{"name": "mnnvl-claim"}] if each["name"] in claiming else []
        assert each["resources"].get("claims", []) == claims, each["name"]


@table("times", [("idempotent - calling twice does not duplicate", 2)])
def test_p1_h_injection_again(times: int) -> None:
    made: Json = ONE
    for _ in range(times):
        made = injected(made, "my-pcs-0")
    assert made["resourceClaims"] == [{"name": "mnnvl-claim", "resourceClaimTemplateName": "my-pcs-0"}]
    assert made["containers"][0]["resources"]["claims"] == [{"name": "mnnvl-claim"}]


def injected(pod: Json, template: str) -> Json:
    injection = inject(a_pod_spec(**pod), template, "/spec", GPUS)
    assert not injection.skipped
    changed = patched({"spec": pod}, injection.operations)["spec"]
    assert isinstance(changed, dict)
    return changed
