"""The node affinity of pods that name a cache by a label: it is added to that of the user."""

import copy

import pytest
from gkm.api.config import Config
from gkm.api.pod_caches import CACHE
from support.grove.objects import NAMESPACE, Json
from support.operator.pod_caches import a_pod, pod_caches

EXPRESSION = {"key": f"cache.gkm.io/{NAMESPACE}.llama", "operator": "Exists"}
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERENCE = {"weight": 10, "preference": {"matchExpressions": [EXPRESSION]}}

USERS: dict[str, Json] = {
    "no affinity": {},
    "null": {"affinity": None},
    "an empty one": {"affinity": {}},
    "of pods": {"affinity": {"podAffinity": {PREFERRED: []}}},
    "of nodes, empty": {"affinity": {"nodeAffinity": {}}},
    "of nodes, null": {"affinity": {"nodeAffinity": None}},
    "preferred": {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": {"matchFields": []}}]}}},
    "required": {
        "affinity": {
            "nodeAffinity": {
                REQUIRED: {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
                        {},
                    ]
                }
            }
        }
    },
}


@pytest.mark.parametrize("nodes", ["preferred", "required"])
@pytest.mark.parametrize("given", USERS.values(), ids=USERS)
def test_the_affinity_of_the_user_is_only_added_to(nodes: str, given: Json) -> None:
    site = pod_caches("llama")
    found = site.review(a_pod(annotations={"gkm.io/cache-nodes": nodes}, **copy.deepcopy(given)))
    expected = copy.deepcopy(given.get("affinity") or {})
    terms = expected["nodeAffinity"] = expected.get("nodeAffinity") or {}
    if nodes == "preferred":
        terms[PREFERRED] = [*terms.get(PREFERRED, ()), PREFERENCE]
    elif REQUIRED in terms:
        first, second, _ = terms[REQUIRED]["nodeSelectorTerms"]
        first["matchExpressions"].append(EXPRESSION)
        second["matchExpressions"] = [EXPRESSION]
    else:
        terms[REQUIRED] = {"nodeSelectorTerms": [{"matchExpressions": [EXPRESSION]}]}
    assert found.object["spec"]["affinity"] == expected


def test_an_expression_of_the_user_is_not_repeated() -> None:
    given = {
        "nodeAffinity": {PREFERRED: [PREFERENCE], REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [EXPRESSION]}]}}
    }
    for nodes in ("preferred", "required"):
        wishes = {"gkm.io/cache-nodes": nodes}
        found = pod_caches("llama").review(a_pod(annotations=wishes, affinity=copy.deepcopy(given)))
        assert found.object["spec"]["affinity"] == given


@pytest.mark.parametrize("nodes", ["preferred", "required"])
def test_without_labels_of_nodes_there_is_no_affinity(nodes: str) -> None:
    found = pod_caches("llama", config=Config()).review(a_pod(annotations={"gkm.io/cache-nodes": nodes}))
    assert "affinity" not in found.object["spec"]
    assert ("fabric.cacheLabels" in found.warnings) == (nodes == "required")


def test_a_name_that_no_label_of_nodes_can_have_gets_no_affinity() -> None:
    name = "a" * 63
    found = pod_caches(name).review(a_pod(labels={CACHE: name}, annotations={"gkm.io/cache-nodes": "required"}))
    assert "affinity" not in found.object["spec"]
    assert "too many characters" in found.warnings
