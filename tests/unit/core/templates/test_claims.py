"""The ResourceClaimTemplate of a group's ComputeDomain."""

import pytest
from gkm.templates.claims import claim_template_of
from support.templates.objects import compute_domain, config_map


def test_the_name_is_read_from_the_rendered_domain() -> None:
    domain = compute_domain("cd", channel={"resourceClaimTemplate": {"name": "osmo-1"}}, numNodes=0)
    assert claim_template_of([config_map(), domain]) == "osmo-1"


def test_no_domain_gives_no_claim() -> None:
    assert claim_template_of([]) is None
    assert claim_template_of([config_map()]) is None
    assert claim_template_of([{**compute_domain("x"), "apiVersion": "example.com/v1"}]) is None


@pytest.mark.parametrize(
    "spec", [None, [], {}, {"channel": None}, {"channel": {"resourceClaimTemplate": {"name": 1}}}, "x"]
)
def test_a_domain_of_another_form_gives_no_claim(spec: object) -> None:
    assert claim_template_of([{**compute_domain("x"), "spec": spec}]) is None
