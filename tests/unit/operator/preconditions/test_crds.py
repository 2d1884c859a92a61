"""Foreign definitions are recognized by the fields they lack."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from gkm.api import crds
from gkm_operator.preconditions.check import OURS
from gkm_operator.preconditions.crds import foreign
from support.operator.upstream import upstream

Json = dict[str, Any]


def ours(plural: str) -> Json:
    return crds.definitions()[f"gkm.io_{plural}.yaml"]


@pytest.mark.parametrize("plural", [resource.plural for resource in OURS])
def test_our_definitions_are_ours(plural: str) -> None:
    assert foreign(plural, ours(plural)) == ""


def test_a_definition_with_additional_fields_is_accepted() -> None:
    newer = ours("gkmcaches")
    schema = newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["later"] = {"type": "string"}
    newer["spec"]["versions"].insert(0, {"name": "v1beta1", "served": True})
    assert foreign("gkmcaches", newer) == ""


def test_a_definition_that_preserves_unknown_fields_is_accepted() -> None:
    loose = upstream()
    loose["spec"]["versions"][0]["schema"] = {
        "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    }
    assert foreign("gkmcaches", loose) == ""


def test_an_upstream_definition_is_recognized_by_its_missing_fields() -> None:
    message = foreign("gkmcaches", upstream())
    assert message.startswith("the API server's CustomResourceDefinition gkmcaches.gkm.io is not ours")
    assert "it lacks spec.imagePullSecrets, spec.nodeSelector, spec.updatePolicy, spec.rollout and" in message
    assert "upstream GKM: docs/how-to/migrate-from-upstream.md" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda found: found["spec"].update(scope="Cluster"), "is Cluster, ours is Namespaced"),
        (lambda found: found["spec"].update(versions=[]), "serves no v1alpha1"),
        (lambda found: found["spec"]["versions"][0].update(served=False), "serves no v1alpha1"),
        (lambda found: found["spec"]["versions"][0].update(schema={}), "it lacks .:"),
        (
            lambda found: status_of(found).update(resolvedDigest={"type": "object"}),
            "it lacks status.resolvedDigest:",
        ),
        (lambda found: status_of(found).pop("ready"), "it lacks status.ready:"),
        (lambda found: status_of(found)["conditions"].pop("items"), "it lacks status.conditions[]:"),
        (
            lambda found: status_of(found)["failedNodeConditions"]["additionalProperties"].update(type="string"),
            "it lacks status.failedNodeConditions.*:",
        ),
        (lambda found: status_of(found).update(conditions="hostile"), "it lacks status.conditions:"),
    ],
)
def test_a_difference_is_named(change: Callable[[Json], object], message: str) -> None:
    found = json.loads(json.dumps(ours("gkmcaches")))
    change(found)
    assert message in foreign("gkmcaches", found)


def test_an_earlier_version_is_not_called_foreign() -> None:
    earlier = json.loads(json.dumps(ours("gkmcaches")))
    del status_of(earlier)["ready"]
    assert "is of an earlier version, it lacks status.ready: apply our crds/" in foreign("gkmcaches", earlier)
    del earlier["metadata"]["labels"]
    assert "is not ours, it lacks status.ready: uninstall" in foreign("gkmcaches", earlier)


def status_of(definition: Json) -> Json:
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    found: Json = schema["properties"]["status"]["properties"]
    return found
