"""The taint of a Node, from its condition: it follows what is known, and changes no other taint."""

import pytest
from gkm.api.fabric_settings import Fabric
from gkm.kube.resources import Json
from gkm.topology.nodes import FABRIC_HEALTHY, NodeCondition, Taint
from gkm_operator.fabric.conditions import TAINT, effects_of, wanted_effects, with_effects
from hypothesis import given
from hypothesis import strategies as st
from msgspec import ValidationError, convert

NO, PREFER = "NoSchedule", "PreferNoSchedule"
KEYS = st.sampled_from([TAINT, "example.com/repair", "nvidia.com/gpu", ""])
TAINTS = st.lists(
    st.fixed_dictionaries(
        {"key": KEYS, "effect": st.sampled_from([NO, PREFER, "NoExecute"])},
        optional={"value": st.text(max_size=3), "timeAdded": st.just("2026-11-01T00:00:00Z")},
    ),
    max_size=5,
)


@pytest.mark.parametrize(
    ("status", "now", "wanted"),
    [
        ("False", set(), {NO}),
        ("False", {NO}, {NO}),
        ("False", {PREFER}, {NO}),
        ("True", {NO}, set()),
        ("Unknown", {NO}, {NO}),
        ("Unknown", set(), set()),
        (None, {NO}, set()),
    ],
)
def test_only_a_node_that_is_known_to_be_unhealthy_gets_the_taint(
    status: str | None, now: set[str], wanted: set[str]
) -> None:
    condition = None if status is None else NodeCondition(FABRIC_HEALTHY, status)
    assert wanted_effects(condition, NO, frozenset(now)) == wanted


@given(TAINTS, st.sets(st.sampled_from([NO, PREFER])))
def test_taints_of_others_stay_whole_and_in_their_order(taints: list[Json], effects: set[str]) -> None:
    written = with_effects(taints, effects)
    assert [each for each in written if each["key"] != TAINT] == [each for each in taints if each["key"] != TAINT]
    assert effects_of(Taint(each["key"], each["effect"]) for each in written) == effects


def test_a_taint_needs_the_condition_that_explains_it_and_ends_no_pods() -> None:
    with pytest.raises(ValidationError, match="nodeTaint needs nodeConditions: true"):
        convert({"nodeTaint": NO}, Fabric)
    with pytest.raises(ValidationError, match="Invalid enum value 'NoExecute'"):
        convert({"nodeTaint": "NoExecute", "nodeConditions": True}, Fabric)
    assert convert({"nodeTaint": NO, "nodeConditions": True}, Fabric).node_taint == NO
