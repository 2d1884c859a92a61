"""The hash is that of canonical JSON."""

import rfc8785
from gkm.packing.hashing import canonical, plan_hash
from gkm.packing.values import Group, Location, Policy, Request, Share
from hypothesis import given
from hypothesis import strategies as st

KEYS = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=8)
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=8) | st.sampled_from(Policy)
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4))


@given(VALUES)
def test_the_standard_library_writes_what_rfc_8785_asks_for(value: object) -> None:
    assert canonical(value) == rfc8785.dumps(value)  # type: ignore[arg-type]


def test_a_hash_changes_with_the_request_the_groups_and_the_inventory() -> None:
    request = Request(gpus=8, pod_gpus=4, group_gpus=8)
    groups = (Group(0, 8, Location("r", "c", "b", "d"), "", (Share("n1", 8),)),)
    other = (Group(0, 8, Location("r", "c", "b", "d"), "", (Share("n2", 8),)),)
    hashes = {
        plan_hash(request, groups, "1"),
        plan_hash(request, groups, "2"),
        plan_hash(request, other, "1"),
        plan_hash(Request(gpus=8, pod_gpus=8, group_gpus=8), groups, "1"),
    }
    assert len(hashes) == 4
    assert plan_hash(request, groups, "1") in hashes
