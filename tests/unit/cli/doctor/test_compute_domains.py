"""Checks of ComputeDomains themselves: deletion, owners, readiness, node labels."""

import json
from typing import Any

import pytest
from gkm_cli.doctor.domains import compute_domains
from support.cli.doctor_lists import CUTOFF, NVIDIA_LABEL, OLD, SET_LABELS, YOUNG, brief, listed, owner, pod, stored
from support.grove.objects import claim_template, compute_domain, pod_clique_set

Json = dict[str, Any]
GROVE, NVIDIA = "grove.io/computedomain-finalizer", NVIDIA_LABEL
OURS = {"gkm.io/written-by": "gkm"}
DOMAIN = "ComputeDomain team/llama-0"
LLAMA = stored(pod_clique_set("llama"))


def domain(*, labels: dict[str, str] | None = None, created: str = OLD, **metadata: Any) -> Json:  # noqa: ANN401 -- JSON
    return stored(compute_domain("llama-0", labels=labels), created=created, **metadata)


def node(name: str, uid: str) -> Json:
    return stored({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {NVIDIA_LABEL: uid}}})


@pytest.mark.parametrize(
    ("labels", "finalizers", "sets", "why", "hint"),
    [
        (SET_LABELS, [GROVE], [], "the PodCliqueSet llama is gone", "kubectl patch computedomain llama-0 -n team"),
        (SET_LABELS, [GROVE], [LLAMA], "the pods of the PodCliqueSet llama have lost NVLink", "restart these pods"),
        (SET_LABELS | OURS, [GROVE, NVIDIA], [], "GKM's controllers have not removed", "features.domains=true"),
        (SET_LABELS, [NVIDIA], [], "compute-domain-controller has not finished", "read its log"),
        ({}, ["example.com/other"], [], "not of Grove, GKM or NVIDIA", "let their owners remove them"),
        ({}, [], [], "not of Grove, GKM or NVIDIA", "let their owners remove them"),
    ],
    ids=["set gone", "set exists", "ours", "NVIDIA's", "other", "none"],
)
def test_a_domain_stuck_in_deletion_has_its_finalizers_and_the_next_step(
    labels: dict[str, str], finalizers: list[str], sets: list[Json], why: str, hint: str
) -> None:
    stuck = domain(labels=labels, finalizers=finalizers, deletionTimestamp=OLD)
    (found,) = compute_domains.terminating(listed(domains=[stuck], sets=sets))
    assert brief([found]) == [("problem", DOMAIN)]
    assert all(finalizer in found.detail for finalizer in finalizers)
    assert (why in found.why, hint in found.hint) == (True, True), found


def test_the_command_removes_only_the_finalizer_of_grove() -> None:
    stuck = domain(labels=SET_LABELS, finalizers=["example.com/a", GROVE, NVIDIA], deletionTimestamp=OLD)
    (found,) = compute_domains.terminating(listed(domains=[stuck]))
    patch = found.hint.partition("-p ")[2].strip("'")
    assert json.loads(patch) == {"metadata": {"finalizers": ["example.com/a", NVIDIA]}}


@pytest.mark.parametrize(
    ("marks", "uid", "severity"),
    [
        ({"gkm.io/pods-using": "2", "gkm.io/used-by": "team/a, team/b"}, "uid-of-llama-0", "warning"),
        ({"gkm.io/pods-using": "2"}, "uid-of-llama-0", "warning"),
        ({"gkm.io/pods-using": "0"}, "uid-of-llama-0", "problem"),
        ({}, "uid-of-llama-0", "problem"),
        ({"gkm.io/pods-using": "2"}, "another", "problem"),
    ],
    ids=["used", "used, without names", "unused", "no mark", "template of another domain"],
)
def test_a_terminating_domain_that_still_serves_its_pods_is_a_warning(
    marks: dict[str, str], uid: str, severity: str
) -> None:
    stuck = domain(labels=SET_LABELS | OURS, finalizers=[NVIDIA], deletionTimestamp=OLD)
    template = stored(claim_template("llama-0", "channel", labels={NVIDIA_LABEL: uid}), annotations=marks)
    (found,) = compute_domains.terminating(listed(domains=[stuck], templates=[template]))
    assert brief([found]) == [(severity, DOMAIN)]
    if severity == "warning":
        assert marks.get("gkm.io/used-by", "2 pods") in found.why


@pytest.mark.parametrize("deleted", [None, YOUNG])
def test_a_domain_that_lives_or_was_just_deleted_is_not_stuck(deleted: str | None) -> None:
    fine = domain(finalizers=[GROVE], deletionTimestamp=deleted)
    assert list(compute_domains.terminating(listed(domains=[fine]))) == []


@pytest.mark.parametrize("sets", [[], [stored(pod_clique_set("llama"), uid="another")]], ids=["no set", "another set"])
@pytest.mark.parametrize(("labels", "hint"), [(SET_LABELS, "kubectl delete"), (SET_LABELS | OURS, "gkm-controllers")])
def test_a_domain_whose_set_is_gone_is_an_orphan(sets: list[Json], labels: dict[str, str], hint: str) -> None:
    orphan = domain(labels=labels, ownerReferences=[owner("PodCliqueSet", "llama")])
    (found,) = compute_domains.orphans(listed(domains=[orphan], sets=sets))
    assert brief([found]) == [("problem", DOMAIN)]
    assert "PodCliqueSet llama does not exist" in found.why
    assert hint in found.hint


def test_a_domain_of_grove_without_owner_is_an_orphan_when_no_set_has_the_name_in_its_label() -> None:
    orphan = domain(labels=SET_LABELS)
    assert brief(list(compute_domains.orphans(listed(domains=[orphan])))) == [("problem", DOMAIN)]
    assert list(compute_domains.orphans(listed(domains=[orphan], sets=[LLAMA]))) == []


@pytest.mark.parametrize(
    ("made", "lists"),
    [
        (domain(labels=SET_LABELS, ownerReferences=[owner("PodCliqueSet", "llama")]), {"sets": [LLAMA]}),
        (domain(labels=SET_LABELS, created=YOUNG), {}),
        (domain(labels=SET_LABELS, deletionTimestamp=OLD), {}),
        (domain(), {}),
        (domain(labels={"app.kubernetes.io/managed-by": "helm"}), {}),
        (domain(labels=OURS, ownerReferences=[owner("Job", "train", group="batch/v1")]), {}),
        (domain(labels=OURS), {"labeled_pods": [stored(pod("p", **{"gkm.io/compute-domain": "llama-0"}))]}),
        (domain(ownerReferences=[owner("PodCliqueSetLike", "llama")]), {}),
    ],
    ids=["its set", "young", "terminating", "a user's", "of helm", "of a job", "of a labeled pod", "another kind"],
)
def test_a_domain_with_a_workload_and_one_of_a_user_is_no_orphan(made: Json, lists: dict[str, Any]) -> None:
    assert list(compute_domains.orphans(listed(domains=[made], **lists))) == []


def test_our_domain_for_a_label_without_owner_and_pods_is_an_orphan() -> None:
    pods = [stored(pod("p", **{"gkm.io/compute-domain": "another"}))]
    (found,) = compute_domains.orphans(listed(domains=[domain(labels=OURS)], labeled_pods=pods))
    assert "no pod has the label gkm.io/compute-domain: llama-0" in found.why


def ready(status: str, reason: str, message: str = "m") -> Json:
    condition = {"type": "MNNVLReady", "status": status, "reason": reason, "message": message, "expected": 4}
    condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    return domain(annotations={"gkm.io/mnnvl-ready": json.dumps(condition)})


@pytest.mark.parametrize(
    ("reason", "severity", "hint"),
    [
        ("DomainLost", "problem", "restart the pods"),
        ("TemplateMissing", "problem", "compute-domain-controller"),
        ("ClaimMissing", "problem", "gkm-admission"),
        ("NodeTaken", "problem", "channel of a node"),
        ("NodesIsolated", "problem", "nodefabrics"),
        ("SeveralCliques", "problem", "network.placement"),
        ("DomainTerminating", "warning", "let its pods end"),
        ("PodsPending", "warning", "kubectl describe pod"),
        ("NodesNotReady", "warning", "kubectl get pods -A -l resource.nvidia.com/computeDomain=uid-of-llama-0"),
        ("ReasonOfALaterRelease", "problem", "IMEX daemons"),
    ],
)
def test_a_condition_that_is_false_is_reported_with_reason_and_message(reason: str, severity: str, hint: str) -> None:
    (found,) = compute_domains.findings(listed(domains=[ready("False", reason, "2 of 4 nodes")]))
    assert (brief([found]), found.why) == ([(severity, DOMAIN)], "2 of 4 nodes")
    assert reason in found.detail
    assert hint in found.hint


@pytest.mark.parametrize(
    "made",
    [
        ready("True", "AllNodesReady"),
        ready("False", "WaitingForPods"),
        domain(),
        ready("False", "NodeTaken")
        | {"metadata": ready("False", "NodeTaken")["metadata"] | {"creationTimestamp": YOUNG}},
    ],
    ids=["true", "no pods yet", "no condition", "young"],
)
def test_a_domain_that_is_ready_unused_or_young_gives_no_finding(made: Json) -> None:
    assert list(compute_domains.findings(listed(domains=[made]))) == []


def test_the_condition_of_a_terminating_domain_counts() -> None:
    lost = ready("False", "DomainLost")
    lost["metadata"]["deletionTimestamp"] = YOUNG
    assert brief(list(compute_domains.findings(listed(domains=[lost])))) == [("problem", DOMAIN)]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"status": 1}', '{"reason": "X"}', "[" * 100_000, '{"status": "\\ud800"}']
)
def test_an_annotation_that_is_no_condition_is_a_warning(text: str) -> None:
    found = list(compute_domains.findings(listed(domains=[domain(annotations={"gkm.io/mnnvl-ready": text})])))
    assert brief(found) == [("warning", DOMAIN)]


def test_labels_with_one_dead_uid_are_one_finding_with_a_command_for_all_its_nodes() -> None:
    nodes = [node(f"n{number}", "dead") for number in range(7)] + [node("alive", "uid-of-llama-0"), node("x", "other")]
    first, second = compute_domains.node_labels(listed(domains=[domain()], nodes=nodes))
    assert first.object == "Node n0, n1, n2, n3, n4 and 2 more"
    assert first.hint == f"kubectl label node -l {NVIDIA_LABEL}=dead {NVIDIA_LABEL}-"
    assert (second.object, "other" in second.detail) == ("Node x", True)


def test_the_cutoff_itself_is_old_enough() -> None:
    stuck = domain(labels=SET_LABELS, finalizers=[GROVE], deletionTimestamp=CUTOFF)
    assert len(list(compute_domains.terminating(listed(domains=[stuck])))) == 1
    assert len(list(compute_domains.orphans(listed(domains=[domain(labels=SET_LABELS, created=CUTOFF)])))) == 1
