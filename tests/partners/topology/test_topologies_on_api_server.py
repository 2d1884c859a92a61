"""The Topologies of Kueue and KAI on a real API server with the definitions of both."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from gkm.api.topology_settings import Topology
from gkm.topology.trees.topologies import kai, kueue
from support.cluster.cluster import Cluster, KubectlFailed
from support.topology.rendered import settings

MOST_LEVELS = [f"level-{number}" for number in range(1, 15)]
KINDS: dict[str, tuple[str, Callable[[Topology], dict[str, Any]]]] = {
    "kueue v1beta1": ("topologies.v1beta1.kueue.x-k8s.io", partial(kueue, version="v1beta1")),
    "kueue v1beta2": ("topologies.v1beta2.kueue.x-k8s.io", kueue),
    "kai v1alpha1": ("topologies.v1alpha1.kai.scheduler", kai),
}


def created(cluster: Cluster, resource: str, topology: dict[str, Any]) -> dict[str, Any]:
    """Create a Topology, and return what the API server stored of it, which is deleted again."""
    cluster.kubectl("create", "--filename", "-", input=json.dumps(topology))
    try:
        found: dict[str, Any] = json.loads(cluster.kubectl("get", resource, "gkm", "--output=json"))
        return found
    finally:
        cluster.kubectl("delete", resource, "gkm")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("levels", [["rack"], ["rack", "block"], MOST_LEVELS], ids=len)
def test_a_topology_is_accepted_and_stored_as_it_is(schedulers: Cluster, kind: str, levels: list[str]) -> None:
    resource, rendered = KINDS[kind]
    wanted = rendered(settings(*levels))
    assert created(schedulers, resource, wanted)["spec"] == wanted["spec"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_levels_of_a_topology_cannot_be_changed(schedulers: Cluster, kind: str) -> None:
    """So a difference is reported, with the command that deletes the object."""
    resource, rendered = KINDS[kind]

    def changed(chosen: Topology) -> None:
        schedulers.apply(rendered(chosen))

    changed(settings("rack", "block"))
    try:
        changed(settings("rack", "block"))
        with pytest.raises(KubectlFailed, match="field is immutable"):
            changed(settings("rack", "block", "cluster"))
    finally:
        schedulers.kubectl("delete", resource, "gkm")
