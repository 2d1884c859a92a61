"""Reviews of pods with the label gkm.io/compute-domain, of any workload kind; and the affinity of all reviews."""

import copy

import pytest
from gkm.api.mnnvl_metadata import DOMAIN_LABEL
from gkm.api.network_settings import Network
from gkm.kube.errors import ApiError
from support.grove.objects import NAMESPACE, Json, claim_template, compute_domain, container
from support.grove.tables import table
from support.operator.workloads import OFF, ON, Workloads, workloads

PODS = "/pods"
CLAIMED = {"mnnvl-claim": "job"}


def a_pod(name: str = "job", gpus: int = 8, **spec: object) -> Json:
    metadata = {"generateName": "job-", "namespace": NAMESPACE, "labels": {DOMAIN_LABEL: name, "app": "x"}}
    return {"metadata": metadata, "spec": {"containers": [container("main", gpus), container("side")], **spec}}


def test_the_claim_of_the_domain_that_the_label_names_is_added_where_gpus_are_requested() -> None:
    found = workloads().review(PODS, a_pod())
    assert found.claims("") == {"main": ["mnnvl-claim"]}
    assert found.templates("") == CLAIMED
    assert not workloads().review(PODS, found.object).changed
    assert workloads().review(PODS, found.object).warnings == ""


def test_a_domain_of_the_user_is_used_with_its_own_template() -> None:
    site = workloads(compute_domain("job", template="template-of-the-user"))
    assert site.review(PODS, a_pod()).templates("") == {"mnnvl-claim": "template-of-the-user"}


@table(
    "given, warning",
    [
        ("no GPUs", a_pod(gpus=0), ""),
        ("uppercase", a_pod("Job"), "which no ComputeDomain can have"),
        ("an underscore", a_pod("my_job"), "which no ComputeDomain can have"),
        ("too long", a_pod("a" * 64), "which no ComputeDomain can have"),
        ("a dot at the end", a_pod("job."), "which no ComputeDomain can have"),
        ("a claim of its own", a_pod(resourceClaims=[{"name": "mnnvl-claim"}]), "does not join ComputeDomain job"),
        ("an empty label", a_pod(""), ""),
    ],
)
def test_a_pod_that_gets_no_claim_is_admitted_and_warned(given: Json, warning: str) -> None:
    found = workloads().review(PODS, given)
    assert (found.allowed, found.changed) == (True, False)
    assert warning in found.warnings
    assert bool(warning) == bool(found.warnings)


def test_a_name_of_several_labels_is_a_name() -> None:
    assert workloads().review(PODS, a_pod("my.set-0")).changed


def test_with_the_feature_switched_off_a_pod_joins_a_domain_that_exists_and_no_other() -> None:
    found = workloads(settings=OFF).review(PODS, a_pod())
    assert (found.allowed, found.changed) == (True, False)
    assert "network.autoMNNVLEnabled is off" in found.warnings
    assert workloads(compute_domain("job"), settings=OFF).review(PODS, a_pod()).templates("") == CLAIMED


@pytest.mark.parametrize("settings", [ON, OFF])
def test_before_the_view_is_complete_the_claim_is_that_of_the_label(settings: Network) -> None:
    assert Workloads(settings).review(PODS, a_pod()).templates("") == CLAIMED


def test_a_pod_is_admitted_when_its_claims_cannot_be_read() -> None:
    site = workloads()
    site.api.fault = lambda verb, _: ApiError(0, "Unreachable", "away") if verb == "get" else None
    other = [{"name": "nic", "resourceClaimTemplateName": "nic"}]
    found = site.review(PODS, a_pod(resourceClaims=other))
    assert found.templates("") == CLAIMED | {"nic": "nic"}
    assert "did not see whether claim 'nic' requests GPUs" in found.warnings
    assert not site.review(PODS, a_pod(gpus=0, resourceClaims=other)).changed


def test_a_pod_whose_claim_does_not_exist_yet_is_admitted_with_a_warning() -> None:
    claims = [{"name": "gpus", "resourceClaimTemplateName": "late"}]
    containers = [{"name": "main", "resources": {"claims": [{"name": "gpus"}]}}]
    found = workloads().review(PODS, a_pod(containers=containers, resourceClaims=claims))
    assert (found.allowed, found.changed) == (True, False)
    assert "claim 'gpus' requests GPUs: claim template late does not exist yet" in found.warnings


def test_a_pod_with_a_channel_of_its_own_gets_no_second_one() -> None:
    site = workloads(claim_template("own", "compute-domain-default-channel.nvidia.com"))
    found = site.review(PODS, a_pod(resourceClaims=[{"name": "imex", "resourceClaimTemplateName": "own"}]))
    assert not found.changed
    assert "is a channel to another ComputeDomain" in found.warnings


def test_a_pod_that_cannot_be_decoded_is_admitted_with_a_warning() -> None:
    found = workloads().review(PODS, a_pod(resourceClaims="x"))
    assert (found.allowed, found.changed) == (True, False)
    assert "this Pod cannot be read" in found.warnings


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
TERM = {"labelSelector": {"matchLabels": {DOMAIN_LABEL: "job"}}, "topologyKey": "gkm.io/fabric-domain"}
OTHER = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone"}
ENTRIES = {"required": (REQUIRED, TERM), "preferred": (PREFERRED, {"weight": 100, "podAffinityTerm": TERM})}
AFFINITIES: dict[str, Json] = {
    "no affinity": {},
    "null": {"affinity": None},
    "an empty one": {"affinity": {}},
    "of nodes": {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}},
    "of pods, empty": {"affinity": {"podAffinity": {}}},
    "of pods, an empty list": {"affinity": {"podAffinity": {REQUIRED: [], PREFERRED: []}}},
    "of pods, required": {"affinity": {"podAffinity": {REQUIRED: [OTHER]}}},
    "of pods, preferred": {"affinity": {"podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": OTHER}]}}},
}


@pytest.mark.parametrize("placement", ["required", "preferred"])
@pytest.mark.parametrize("given", AFFINITIES.values(), ids=AFFINITIES)
def test_the_affinity_is_appended_to_that_of_the_user_once(placement: str, given: Json) -> None:
    site = workloads(settings=Network(auto_mnnvl_enabled=True, placement=placement))  # type: ignore[arg-type] # one of the values
    found = site.review(PODS, a_pod(**copy.deepcopy(given)))
    name, entry = ENTRIES[placement]
    expected = copy.deepcopy(given.get("affinity") or {})
    terms = expected.setdefault("podAffinity", {})
    terms[name] = [*terms.get(name, ()), entry]
    assert found.object["spec"]["affinity"] == expected
    again = site.review(PODS, found.object)
    assert not again.changed


def test_without_placement_no_affinity_is_added() -> None:
    assert "affinity" not in workloads().review(PODS, a_pod()).object["spec"]


def test_a_pod_without_gpus_gets_no_affinity() -> None:
    site = workloads(settings=Network(auto_mnnvl_enabled=True, placement="required"))
    assert not site.review(PODS, a_pod(gpus=0)).changed


def test_a_pod_near_the_size_that_etcd_stores_stays_as_it_is() -> None:
    found = workloads().review(PODS, a_pod(x="x" * (1 << 20)))
    assert (found.allowed, found.changed) == (True, False)
    assert "more than 1 MiB" in found.warnings
