"""Sets, PodCliques and scaling groups of which the watches hold outlines only: they are made and repaired as others."""

from typing import Any

import pytest
from gkm_operator.cliques.kinds import CLIQUES as WATCHED
from support.grove.driver import CLIQUES, SETS
from support.grove.objects import NAMESPACE
from support.kube.fake_api import FakeApi
from support.operator.cliques import Stepper, a_set, differences, observed

Json = dict[str, Any]
ENV = [{"name": f"VARIABLE_{number}", "value": "v" * 60} for number in range(100)]


@pytest.fixture
def api() -> FakeApi:
    api, made = FakeApi(), a_set()
    for template in made["spec"]["template"]["cliques"]:
        template["spec"]["podSpec"]["containers"][0]["env"] = ENV
    api.create(SETS, made)
    return api


@pytest.fixture
def stepper(api: FakeApi) -> Stepper:
    made = Stepper(api)
    made.settle()
    return made


def enqueue_all(stepper: Stepper) -> None:
    for reflector in stepper.controller._parents.values():
        for parent in reflector.values():
            stepper.controller._changed(None, parent)


def test_they_are_made(api: FakeApi, stepper: Stepper) -> None:
    held = stepper.controller._parents[WATCHED.kind].values()
    assert {clique.metadata.oversized.partition(":")[0] for clique in held} == {"spec.podSpec"}
    assert differences(api) == []


def test_a_change_of_one_is_undone(api: FakeApi, stepper: Stepper) -> None:
    name = next(iter(observed(api, CLIQUES)))
    spec = observed(api, CLIQUES)[name]["spec"]["podSpec"]
    spec["containers"][0]["image"] = "registry.test/other:1"
    api.merge(CLIQUES, name, {"spec": {"podSpec": spec}}, NAMESPACE)
    stepper.settle()
    assert observed(api, CLIQUES)[name]["spec"]["podSpec"]["containers"][0]["image"] != "registry.test/other:1"


def test_children_that_are_as_required_are_not_read_again(api: FakeApi, stepper: Stepper) -> None:
    for _ in range(2):
        before = len(api.calls)
        enqueue_all(stepper)
        stepper.reconcile()
    made = api.calls[before:]
    # Each once, because it owns pods; not because a set or a scaling group owns it.
    assert [plural for _, plural, *_ in made].count(CLIQUES.plural) == len(observed(api, CLIQUES))
    assert {verb for verb, *_ in made} == {"list"}
