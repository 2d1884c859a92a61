"""Properties of names, injection and required domains, over generated sets and pods."""

import re
from typing import Any

import pytest
from gkm.api.mnnvl_metadata import AUTO_MNNVL, MNNVL_GROUP
from gkm_operator.mnnvl import dialect, required
from gkm_operator.mnnvl.injection import inject
from gkm_operator.mnnvl.required import difference, domain_of, key_of, required_domains
from hypothesis import given
from hypothesis import strategies as st
from support.grove.json_patch import patched
from support.grove.objects import Json, clique, scaling_group
from support.grove.typed import CLASSES, GPUS, a_compute_domain, a_pod_clique, a_pod_spec, a_set, device_classes

LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
SUBDOMAIN = re.compile(rf"{LABEL.pattern}(\.{LABEL.pattern})*")

labels = st.text("ab1-", min_size=1, max_size=63).map(lambda text: text.strip("-") or "a")
joining = st.sampled_from(["foo", "foo-0", "foo-0-1", "1-x", "x", "0", "1", "0-x"])
"""Names that run into each other when they are joined."""
long = st.builds(lambda start, end: start * 31 + end, st.sampled_from(["aa", "a-"]), labels)
"""Names with one beginning, with a hyphen wherever one may be cut."""
long_labels = long.map(lambda name: name[:63].rstrip("-"))
set_names = joining | long_labels | labels
groups = st.just(dialect.WHOLE_SET) | joining | long_labels | labels
replicas = st.integers(0, 1) | st.integers(0, 2**31 - 1)
domains = st.tuples(joining, st.integers(0, 1), joining) | st.tuples(set_names, replicas, groups)


@given(domains)
def test_names_are_dns_labels(domain: tuple[str, int, str]) -> None:
    for name in (required.domain_name(*domain), required.alternative_name(*domain)):
        assert LABEL.fullmatch(name)
        assert len(name) <= required.MAX_NAME_LENGTH


@pytest.mark.parametrize("pattern", ["a.", "a-", "a.a-", "abc"])
def test_names_are_cut_between_words(pattern: str) -> None:
    for length in range(1, 64):
        pod_clique_set = (pattern * 63)[:length].rstrip(".-")
        for group in ("", "x", "a-" * 20 + "a"):
            for name in (required.domain_name, required.alternative_name):
                made = name(pod_clique_set, 3, group)
                assert SUBDOMAIN.fullmatch(made), made
                assert len(made) <= required.MAX_NAME_LENGTH


@given(st.sets(domains, min_size=2, max_size=20))
def test_alternative_names_of_different_domains_differ(found: set[tuple[str, int, str]]) -> None:
    assert len({required.alternative_name(*domain) for domain in found}) == len(found)


@given(set_names, st.sets(st.tuples(replicas, groups), min_size=2, max_size=20))
def test_names_within_a_set_differ(pod_clique_set: str, keys: set[tuple[int, str]]) -> None:
    assert len({required.domain_name(pod_clique_set, *key) for key in keys}) == len(keys)


@given(domains)
def test_a_short_name_is_groves(domain: tuple[str, int, str]) -> None:
    pod_clique_set, replica, group = domain
    grove = "-".join(part for part in (pod_clique_set, str(replica), group) if part)
    name = required.domain_name(*domain)
    assert name == (grove if len(grove) <= 63 else required.alternative_name(*domain))
    assert required.alternative_name(*domain) != grove


RESOURCES: list[Json] = [
    {},
    {"limits": None, "requests": {}},
    {"limits": {"cpu": "1", "memory": 8}},
    {"limits": {"nvidia.com/gpu": "0"}, "requests": {"nvidia.com/gpu": 0}},
    {"limits": {"nvidia.com/gpu": "8"}},
    {"limits": {"cpu": "1"}, "requests": {"nvidia.com/mig-1g": 1}},
    {"limits": {"nvidia.com/gpu": "1k"}, "requests": None},
]
claim_names = st.sampled_from(["gpu", "nic", "mine"])
templates = st.sampled_from([*CLASSES, "unknown"])
lists_of_claims = st.none() | st.lists(claim_names.map(lambda name: {"name": name}), max_size=2, unique_by=str)


@st.composite
def containers(draw: st.DrawFn, name: str) -> Json:
    """A container as users write it: resources and lists may be absent, null or empty."""
    resources: Json | None = draw(st.sampled_from([None, *RESOURCES]))
    if resources is not None:
        resources = resources | draw(st.fixed_dictionaries({}, optional={"claims": lists_of_claims}))
    return {"name": name} | draw(st.sampled_from([{}, {"resources": resources}, {"resources": resources}]))


@st.composite
def pods(draw: st.DrawFn) -> Json:
    """A pod specification with up to two containers of each kind, and claims of the user."""
    made: Json = {"restartPolicy": "Always"}
    for field in ("containers", "initContainers"):
        count = draw(st.integers(0, 2))
        made |= draw(st.sampled_from([{}, {field: None}])) if not count else {}
        if count:
            made[field] = [draw(containers(f"{field}-{index}")) for index in range(count)]
    names = draw(st.none() | st.lists(claim_names | st.just("mnnvl-claim"), max_size=3, unique=True))
    if names is not None:
        made["resourceClaims"] = [{"name": name, "resourceClaimTemplateName": draw(templates)} for name in names]
    return made


def everything(pod: Json) -> list[Json]:
    return (pod.get("initContainers") or []) + (pod.get("containers") or [])


def claims_of(container: Json) -> list[Any]:
    return (container.get("resources") or {}).get("claims") or []


def requests_gpus(container: Json, pod: Json) -> bool:
    """The rule again, from the JSON."""
    resources = container.get("resources") or {}
    quantities = [pair for field in ("limits", "requests") for pair in (resources.get(field) or {}).items()]
    if any(name.startswith("nvidia.com/") and quantity in ("8", 1, "1k") for name, quantity in quantities):
        return True
    by_name = {
        claim["name"]: CLASSES.get(claim["resourceClaimTemplateName"]) for claim in pod.get("resourceClaims") or []
    }
    return any(by_name.get(claim["name"]) == "gpu.nvidia.com" for claim in claims_of(container))


def without_ours(pod: Json) -> Any:  # noqa: ANN401 -- JSON
    """The pod without the claim of GKM; what remains must be what the user wrote."""
    made = patched(pod, ())
    holders = [(made, "resourceClaims"), *((each.get("resources") or {}, "claims") for each in everything(made))]
    for holder, field in holders:
        holder[field] = [claim for claim in holder.get(field) or () if claim["name"] != "mnnvl-claim"]
    return made


OURS = {"name": "mnnvl-claim", "resourceClaimTemplateName": "test-pcs-0"}


@given(pods())
def test_injection_adds_one_claim_in_exactly_the_containers_with_gpus(pod: Json) -> None:
    injection = inject(a_pod_spec(**pod), "test-pcs-0", "", GPUS, device_classes)
    made = patched(pod, injection.operations)
    with_gpus = [each["name"] for each in everything(pod) if requests_gpus(each, pod)]
    if injection.skipped or not with_gpus:
        assert made == pod
        return
    assert [claim for claim in made["resourceClaims"] if claim["name"] == "mnnvl-claim"] == [OURS]
    counts = {each["name"]: claims_of(each).count({"name": "mnnvl-claim"}) for each in everything(made)}
    assert counts == {name: int(name in with_gpus) for name in counts}


@given(pods())
def test_injection_changes_no_claim_of_the_user(pod: Json) -> None:
    made = patched(pod, inject(a_pod_spec(**pod), "test-pcs-0", "", GPUS, device_classes).operations)
    written = pod.get("resourceClaims") or []
    assert (made.get("resourceClaims") or [])[: len(written)] == written
    assert without_ours(made) == without_ours(pod)


@given(pods())
def test_injection_is_skipped_only_for_a_claim_of_the_user(pod: Json) -> None:
    by_name = {claim["name"]: claim["resourceClaimTemplateName"] for claim in pod.get("resourceClaims") or []}
    reasons = "mnnvl-claim" in by_name or "channel-template" in by_name.values()
    with_gpus = any(requests_gpus(each, pod) for each in everything(pod))
    injection = inject(a_pod_spec(**pod), "test-pcs-0", "", GPUS, device_classes)
    assert bool(injection.skipped) is (reasons and with_gpus)


@given(pods())
def test_injection_twice_is_injection_once(pod: Json) -> None:
    once = patched(pod, inject(a_pod_spec(**pod), "test-pcs-0", "", GPUS, device_classes).operations)
    again = inject(a_pod_spec(**once), "test-pcs-0", "", GPUS, device_classes)
    assert not again.operations


layers = st.none() | st.sampled_from([{}, *({MNNVL_GROUP: name} for name in ("none", "a", "b"))])


@st.composite
def set_fields(draw: st.DrawFn) -> Json:
    """The arguments of a_set: cliques, some of them in scaling groups, with annotations of both dialects."""
    names = "abcd"[: draw(st.integers(1, 4))]
    cliques = [clique(name, draw(st.sampled_from([0, 8])), annotations=draw(layers)) for name in names]
    members = draw(st.lists(st.lists(st.sampled_from(names), max_size=3), max_size=2))
    found = [scaling_group(f"sg{index}", *each, annotations=draw(layers)) for index, each in enumerate(members)]
    annotations = (draw(layers) or {}) | draw(st.sampled_from([{}, {AUTO_MNNVL: "enabled"}, {AUTO_MNNVL: "disabled"}]))
    return {"cliques": cliques, "scaling_groups": found, "annotations": annotations}


@given(set_fields(), st.integers(0, 12), st.integers(0, 12))
def test_required_domains_grow_with_the_replicas_only(fields: Json, few: int, more: int) -> None:
    cliques = fields.pop("cliques")
    small = required_domains(a_set(*cliques, **fields, replicas=few), GPUS)
    large = required_domains(a_set(*cliques, **fields, replicas=few + more), GPUS)
    assert small == {key for key in large if key.replica < few}
    assert {key.replica for key in large} in (set(), set(range(few + more)))


@given(set_fields())
def test_a_pod_clique_with_gpus_is_in_a_required_domain_or_in_none(fields: Json) -> None:
    cliques = fields.pop("cliques")
    made = a_set(*cliques, **fields, replicas=1)
    required = required_domains(made, GPUS)
    for template, within in made.memberships():
        key = domain_of(made, a_pod_clique("test-pcs", "0", template.name, within.name if within else ""))
        if GPUS.any(template.spec.pod_spec):
            assert key is None or key in required
        assert key is None or dialect.enrolls(made)


@given(set_fields(), st.integers(0, 4), st.integers(0, 4))
def test_what_is_created_and_released_makes_what_is_required(fields: Json, before: int, after: int) -> None:
    cliques = fields.pop("cliques")
    has = required_domains(a_set(*cliques, **fields, replicas=before), GPUS)
    wants = required_domains(a_set(*cliques, **fields, replicas=after), GPUS)
    found = difference(wants, [a_compute_domain(str(key), str(key.replica), key.group) for key in has])
    assert has - {key_of(domain) for domain in found.release} | set(found.create) == wants
    assert not found.lost
