"""The sections `topology` and `packing` of the configuration."""

import pytest
from gkm.api.topology_settings import Packing, Topology
from gkm.packing.values import Policy
from msgspec import ValidationError, convert


def test_nothing_needs_to_be_configured() -> None:
    assert (convert({}, Topology), convert({}, Packing)) == (Topology(), Packing())


@pytest.mark.parametrize("policy", list(Policy))
def test_every_policy_of_the_planner_can_be_the_default(policy: Policy) -> None:
    assert convert({"policy": str(policy), "planTTL": 60}, Packing) == Packing(policy.value, 60.0)


@pytest.mark.parametrize(
    "section",
    [
        {"missingFabric": "merge"},
        {"labels": {"rack": ["a b"]}},
        {"labels": {"rack": ["a/b/c"]}},
        {"labels": {"rack": [""]}},
        {"labels": {"rack": ["r"] * 17}},
        {"labels": {"zone": ["z"]}},
        {"defaults": {"region": ""}},
        {"defaults": {"cluster": "a/b"}},
    ],
)
def test_invalid_settings_are_refused(section: object) -> None:
    with pytest.raises(ValidationError):
        convert(section, Topology)


@pytest.mark.parametrize("section", [{"policy": "best"}, {"planTTL": 0}, {"planTTL": -1}, {"planTTL": 1e9}, {"ttl": 1}])
def test_the_lifetime_of_a_plan_is_bounded(section: object) -> None:
    with pytest.raises(ValidationError):
        convert(section, Packing)
