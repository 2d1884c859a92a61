"""PodCliques are reduced to how many pods of which claim templates there should be."""

import pytest
from gkm.api.grove import CliqueSpec
from gkm_operator.computedomains.status.observer import ClaimingClique
from support.grove.observed import clique, clique_json, read


@pytest.mark.parametrize(("replicas", "pods"), [(3, 3), (0, 0), (None, 1)])
def test_a_clique_without_a_number_of_replicas_has_one_pod(replicas: int | None, pods: int) -> None:
    assert clique("workers", replicas).replicas == pods


def test_only_claims_by_template_count_and_the_specification_is_not_stored() -> None:
    value = clique_json("workers", 2, "first")
    claims = value["spec"]["podSpec"]["resourceClaims"]
    claims += [
        {"name": "second", "resourceClaimTemplateName": "second"},
        {"name": "direct", "resourceClaimName": "direct"},
    ]
    found = read(ClaimingClique, value)
    assert sorted(found.template_keys) == [("team", "first"), ("team", "second")]
    assert found.spec == CliqueSpec()


def test_a_clique_without_claims_has_no_templates() -> None:
    value = clique_json("router", 1)
    del value["spec"]["podSpec"]["resourceClaims"]
    assert read(ClaimingClique, value).templates == frozenset()
