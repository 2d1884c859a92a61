"""Checks of claims, claim templates, and pods that wait for them."""

from typing import Any

import pytest
from gkm_cli.doctor.domains import compute_domains
from support.cli.doctor_lists import NVIDIA_LABEL, OLD, YOUNG, brief, claim, listed, owner, pod, stored
from support.grove.objects import claim_template, compute_domain

Json = dict[str, Any]
CHANNEL, DAEMON = "compute-domain-default-channel.nvidia.com", "compute-domain-daemon.nvidia.com"
LLAMA = stored(compute_domain("llama-0"))
TEMPLATE = "ResourceClaimTemplate team/llama-0"
CLAIM = "ResourceClaim team/c"


def template(name: str = "llama-0", uid: str = "", device_class: str = CHANNEL, created: str = OLD) -> Json:
    return stored(claim_template(name, device_class, labels={NVIDIA_LABEL: uid} if uid else {}), created=created)


def test_a_template_of_a_domain_that_is_gone_is_an_orphan() -> None:
    (found,) = compute_domains.templates(
        listed(domains=[LLAMA], templates=[template("old", "dead"), template(uid=LLAMA_UID)])
    )
    assert brief([found]) == [("problem", "ResourceClaimTemplate team/old")]
    assert "kubectl delete resourceclaimtemplate old -n team" in found.hint
    assert NVIDIA_LABEL in found.hint


LLAMA_UID = "uid-of-llama-0"


@pytest.mark.parametrize("made", [template(), template(uid=LLAMA_UID), template(uid="dead", created=YOUNG)])
def test_a_users_template_one_of_a_living_domain_and_a_young_one_are_no_orphans(made: Json) -> None:
    assert list(compute_domains.templates(listed(domains=[LLAMA], templates=[made]))) == []


def test_templates_of_daemons_are_judged_only_with_the_domains_of_all_namespaces() -> None:
    daemon = template("computedomain-daemon-1", "dead", DAEMON)
    assert len(list(compute_domains.templates(listed(templates=[daemon])))) == 1
    assert list(compute_domains.templates(listed("team", templates=[daemon]))) == []


@pytest.mark.parametrize(
    ("made", "whose", "hint"),
    [
        (template(), "is not of NVIDIA's controller", "or delete the template if it is unused"),
        (template(uid="uid-of-b"), "belongs to the ComputeDomain b", "create one of the two ComputeDomains again"),
    ],
    ids=["a user's", "another domain's"],
)
def test_a_template_that_takes_the_name_of_a_domains_template_is_a_problem(made: Json, whose: str, hint: str) -> None:
    other = stored(compute_domain("b"))
    (found,) = compute_domains.template_names(listed(domains=[LLAMA, other], templates=[made]))
    assert brief([found]) == [("problem", TEMPLATE)]
    assert whose in found.detail
    assert hint in found.hint


@pytest.mark.parametrize(
    ("domain", "made"),
    [
        (LLAMA, [template(uid=LLAMA_UID)]),
        (LLAMA, []),
        (LLAMA, [template("another")]),
        (LLAMA, [template(uid="dead")]),
        (stored(compute_domain("llama-0"), deletionTimestamp=OLD), [template()]),
        (stored(compute_domain("llama-0", namespace="other")), [template()]),
    ],
    ids=["its own", "none", "another name", "an orphan", "domain terminating", "other namespace"],
)
def test_any_other_template_takes_no_name(domain: Json, made: list[Json]) -> None:
    assert list(compute_domains.template_names(listed(domains=[domain], templates=made))) == []


POD = stored(pod("p"), uid="pod-1")


@pytest.mark.parametrize(
    ("made", "detail"),
    [
        (claim("c", LLAMA_UID, pod_uid="pod-2"), "its pod does not exist"),
        (
            stored(claim("c", LLAMA_UID), ownerReferences=[owner("Pod", "p", "pod-2", group="v1")]),
            "its pod does not exist",
        ),
        (claim("c", "dead", pod_uid="pod-1"), "uid dead, and no ComputeDomain has it"),
        (claim("c", "dead"), "uid dead, and no ComputeDomain has it"),
        (claim("c", "dead", kind="ComputeDomainDaemonConfig"), "uid dead"),
    ],
    ids=["reserved for a pod that is gone", "owner is gone", "domain is gone", "no pods", "a daemon's"],
)
def test_an_allocated_claim_without_pod_or_domain_is_an_orphan(made: Json, detail: str) -> None:
    found = list(compute_domains.claims(listed(domains=[LLAMA], pods=[POD], claims=[stored(made, **_owners(made))])))
    assert brief(found) == [("problem", CLAIM)]
    assert detail in found[0].detail


def _owners(made: Json) -> Json:
    return {"ownerReferences": made["metadata"].get("ownerReferences", [])}


def _without_allocation() -> Json:
    made = claim("c", "dead")
    del made["status"]["allocation"]
    return made


def _of_another_driver() -> Json:
    made = claim("c", "dead")
    made["spec"]["devices"]["config"][0]["opaque"]["driver"] = "gpu.nvidia.com"
    return made


@pytest.mark.parametrize(
    ("made", "namespace"),
    [
        (stored(claim("c", LLAMA_UID, pod_uid="pod-1")), ""),
        (stored(claim("c", "dead", pod_uid="pod-2"), created=YOUNG), ""),
        (stored(_without_allocation()), ""),
        (stored(_of_another_driver()), ""),
        (stored(claim("c", "dead", kind="ComputeDomainDaemonConfig")), "team"),
    ],
    ids=["in use", "young", "not allocated", "of another driver", "a daemon's, its domain is elsewhere"],
)
def test_any_other_claim_is_no_orphan(made: Json, namespace: str) -> None:
    assert list(compute_domains.claims(listed(namespace, domains=[LLAMA], pods=[POD], claims=[made]))) == []


@pytest.mark.parametrize(
    "config",
    [None, 1, "x", {}, [], [None], [1], [{}], [{"opaque": 1}], [{"opaque": {"driver": "compute-domain.nvidia.com"}}]],
)
def test_a_claim_with_any_other_configuration_is_of_no_domain(config: object) -> None:
    made = stored(claim("c", "dead"))
    made["spec"]["devices"]["config"] = config
    assert list(compute_domains.claims(listed(claims=[made]))) == []


@pytest.mark.parametrize("uid", [None, 1, [], {}, "", True])
def test_a_claim_whose_uid_is_no_text_is_of_no_domain(uid: object) -> None:
    assert list(compute_domains.claims(listed(claims=[stored(claim("c", uid))]))) == []


def test_pods_that_wait_for_one_template_are_one_finding() -> None:
    pods = [stored(pod(f"p{number}", "llama-0")) for number in range(7)]
    (found,) = compute_domains.waiting_pods(listed(pending_pods=pods, domains=[LLAMA]))
    assert brief([found]) == [("problem", TEMPLATE)]
    assert "p0, p1, p2, p3, p4 and 2 more" in found.detail
    assert "has not made it for the ComputeDomain llama-0" in found.why


@pytest.mark.parametrize(
    "made",
    [pod("p", "gone", "mnnvl-claim"), pod("p", "gone", "mine", **{"gkm.io/compute-domain": "gone"})],
    ids=["injected claim", "our label"],
)
def test_pods_whose_domain_is_gone_are_found_by_claim_or_label(made: Json) -> None:
    (found,) = compute_domains.waiting_pods(listed(pending_pods=[stored(made)], domains=[LLAMA]))
    assert found.object == "ResourceClaimTemplate team/gone"
    assert "no ComputeDomain of the namespace" in found.why


def test_the_template_of_a_terminating_domain_does_not_come() -> None:
    terminating = stored(compute_domain("llama-0"), deletionTimestamp=OLD)
    (found,) = compute_domains.waiting_pods(listed(pending_pods=[stored(pod("p", "llama-0"))], domains=[terminating]))
    assert "the ComputeDomain llama-0 is Terminating" in found.why


def _with_claim() -> Json:
    made = pod("p", "llama-0")
    made["status"]["resourceClaimStatuses"] = [{"name": "mnnvl-claim", "resourceClaimName": "p-mnnvl-claim-x"}]
    return made


@pytest.mark.parametrize(
    ("made", "templates"),
    [
        (stored(pod("p", "llama-0")), [template()]),
        (stored(pod("p", "llama-0", phase="Running")), []),
        (stored(pod("p", "llama-0"), created=YOUNG), []),
        (stored(pod("p", "llama-0"), deletionTimestamp=OLD), []),
        (stored(_with_claim()), []),
        (stored(pod("p", "of-a-user", "gpu")), []),
        (stored(pod("p")), []),
    ],
    ids=["template exists", "running", "young", "terminating", "claim exists", "not of a domain", "no claim"],
)
def test_any_other_pod_does_not_wait_for_a_domain(made: Json, templates: list[Json]) -> None:
    assert list(compute_domains.waiting_pods(listed(pending_pods=[made], templates=templates, domains=[LLAMA]))) == []
