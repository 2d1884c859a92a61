"""Our labels: what they are, and that no other key ever stands in a patch."""

import re

from gkm.api.node_labels import cache_label
from gkm.hoststate.names import CacheRef
from gkm_agent.fabric.labels import MAX_CACHES, WantedLabels, label_patch, wanted
from gkm_agent.fabric.nvlink import FabricVerdict, Health
from hypothesis import given
from hypothesis import strategies as st
from support.agent.fabric_values import DOMAIN

GOOD = FabricVerdict(DOMAIN, Health.HEALTHY, "nvidia-gb200")
DIGEST = "sha256:" + "0123456789abcdef" * 4
FABRIC = {"gkm.io/fabric-domain": DOMAIN, "gkm.io/gpu-flavor": "nvidia-gb200", "gkm.io/fabric-health": "healthy"}
FOREIGN = {
    "gkm.io/other": "x",
    "kubernetes.io/hostname": "n",
    "nvidia.com/gpu.clique": "c",
    "gkm.node": "n",
    "pool": "",
}


def test_a_node_has_labels_for_domain_flavor_and_health() -> None:
    assert wanted(GOOD, {}) == WantedLabels(FABRIC)


def test_a_node_without_a_value_has_no_label_for_it() -> None:
    assert wanted(FabricVerdict("", Health.NONE), {}).labels == {"gkm.io/fabric-health": "none"}


def test_ready_caches_have_labels_by_namespace_name_and_the_start_of_their_digest() -> None:
    found = wanted(GOOD, {CacheRef("ml-apps", "llama"): DIGEST, CacheRef(None, "base.v1"): DIGEST}).labels
    assert found == FABRIC | {
        "cache.gkm.io/ml-apps.llama": "0123456789ab",
        "cache.gkm.io/cluster_scoped.base.v1": "0123456789ab",
    }


def test_a_name_that_cannot_be_a_key_is_left_out_with_a_reason() -> None:
    long = CacheRef("ml-apps", "n" * 56)
    assert cache_label("ml-apps", "n" * 55) == "cache.gkm.io/ml-apps." + "n" * 55
    assert cache_label("ml-apps", long.name) is None
    found = wanted(GOOD, {long: DIGEST})
    assert found.labels == FABRIC
    assert found.skipped == (f"{long}: its namespace and name have more than 63 characters, too many for a label key",)


def test_a_value_that_cannot_be_one_is_left_out_with_a_reason() -> None:
    found = wanted(FabricVerdict("not a value", Health.HEALTHY, "x" * 64), {})
    assert found.labels == {"gkm.io/fabric-health": "healthy"}
    assert [reason.partition(":")[0] for reason in found.skipped] == ["gkm.io/fabric-domain", "gkm.io/gpu-flavor"]


def test_the_labels_of_caches_are_bounded() -> None:
    many = {CacheRef("a", f"c{index}"): DIGEST for index in range(MAX_CACHES + 2)}
    found = wanted(GOOD, many)
    assert len(found.labels) == MAX_CACHES + len(FABRIC)
    assert len(found.skipped) == 2


def test_only_what_differs_is_patched() -> None:
    there = FOREIGN | FABRIC | {"gkm.io/fabric-health": "degraded"}
    assert label_patch(there, WantedLabels(FABRIC)) == {"gkm.io/fabric-health": "healthy"}
    assert label_patch(FOREIGN | FABRIC, WantedLabels(FABRIC)) == {}


def test_an_outdated_label_is_removed() -> None:
    there = FOREIGN | FABRIC | {"cache.gkm.io/a.b": "0"}
    assert label_patch(there, wanted(FabricVerdict("", Health.NONE), {})) == {
        "gkm.io/fabric-domain": None,
        "gkm.io/gpu-flavor": None,
        "gkm.io/fabric-health": "none",
        "cache.gkm.io/a.b": None,
    }


def test_labels_of_caches_stay_until_the_ready_caches_are_known() -> None:
    there = FABRIC | {"cache.gkm.io/a.b": "0"}
    assert label_patch(there, wanted(GOOD, None)) == {}
    assert label_patch(there, wanted(GOOD, {})) == {"cache.gkm.io/a.b": None}


_KEY = st.sampled_from([*FABRIC, *FOREIGN, "cache.gkm.io/a.b", "cache.gkm.io/x"]) | st.text(max_size=20)
_LABELS = st.dictionaries(_KEY, st.text(max_size=8), max_size=12)
_NAME = st.from_regex(re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII), fullmatch=True)
_REFS = st.dictionaries(st.builds(CacheRef, st.none() | _NAME, _NAME), st.just(DIGEST), max_size=5)


@given(_LABELS, _REFS, st.builds(FabricVerdict, st.sampled_from(["", DOMAIN]), st.sampled_from(Health)))
def test_a_patch_makes_it_so_and_names_only_keys_of_ours(
    there: dict[str, str], ready: dict[CacheRef, str], verdict: FabricVerdict
) -> None:
    said = wanted(verdict, ready)

    patch = label_patch(there, said)

    assert all(key in FABRIC or key.startswith("cache.gkm.io/") for key in patch)
    after = {key: value for key, value in (there | patch).items() if value is not None}
    assert label_patch(after, said) == {}
    ours = {key: value for key, value in after.items() if key in FABRIC or key.startswith("cache.gkm.io/")}
    assert ours == said.labels
    assert all(re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", key.partition("/")[2]) for key in ours)


@given(st.dictionaries(st.builds(CacheRef, st.none() | _NAME, _NAME), st.just(DIGEST), max_size=8))
def test_two_caches_never_share_a_label(ready: dict[CacheRef, str]) -> None:
    keys = [key for key in (cache_label(one.namespace, one.name) for one in ready) if key is not None]
    assert len(keys) == len(set(keys))
