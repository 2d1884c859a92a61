"""`kubectl describe` tells what happened to a cache, to its node and to the installation, and what to do."""

from collections.abc import Iterator
from functools import partial

import pytest
from support.cluster.gkm_objects import cache
from support.operator.accounts import WEBHOOKS, Accounts, accounts
from support.operator.rights import SYSTEM
from support.operator.seen import NODE, TEAM
from support.peers import require


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Accounts]:
    """A verified cache that its node has, and one whose image does not exist."""
    for command in ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl"):
        require.peer(command)
    with accounts(tmp_path_factory.mktemp("described")) as made:
        made.register_node()
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        made.cluster.objects.merge("node", NODE, ready, subresource="status")
        # Nobody answers it, and admission would refuse the image that does not exist.
        made.cluster.objects.delete_named("validatingwebhookconfiguration", WEBHOOKS)
        made.controllers("first")
        made.agent()
        made.declare("llama", TEAM)
        made.cluster.until(partial(made.seen.is_ready, "llama", TEAM), "the agent to fetch it")
        made.cluster.apply(cache("absent", TEAM, f"{made.machine.registry.host}/team/nothing:1"))
        made.cluster.until(lambda: "absent" in made.seen.node_object(TEAM)["status"]["caches"], "the agent to see it")
        yield made


def events(place: Accounts, name: str) -> list[list[str]]:
    """Return type, reason and message of each Event in the description."""
    described = place.cluster.kubectl("describe", "gkmcache", name, "--namespace", TEAM)
    lines = described.partition("Events:")[2].splitlines()[3:]
    return [[words[0], words[1], " ".join(words[4:])] for words in map(str.split, lines) if words]


def until_told(place: Accounts, name: str, *reasons: str, space: str = TEAM) -> None:
    """Wait until there are events with these reasons about an object; kubectl takes too long to be asked again."""

    def are_told() -> bool:
        found = place.cluster.objects.every("events", space, fieldSelector=f"involvedObject.name={name}")
        return set(reasons) <= {event["reason"] for event in found}

    place.cluster.until(are_told, f"the events {reasons} of {name}")


def test_a_cache_is_signed_and_then_ready(place: Accounts) -> None:
    until_told(place, "llama", "CosignSuccess", "AllNodesReady")
    # kubectl sorts by a field that events.k8s.io/v1 forbids, so those of the same second are in any order.
    ready, signed = sorted(events(place, "llama"))
    assert signed[:2] == ["Normal", "CosignSuccess"]
    assert " is signed by key " in signed[2]
    assert ready[:2] == ["Normal", "AllNodesReady"]
    assert "1 of 1 node" in ready[2]


def test_a_cache_without_an_image_says_what_to_check(place: Accounts) -> None:
    until_told(place, "absent", "NotFound")
    ((kind, reason, message),) = events(place, "absent")
    assert (kind, reason) == ("Warning", "NotFound")
    assert message.endswith("does not exist in its registry; check repository, tag and digest")


def test_a_node_names_the_cache_that_it_waits_for(place: Accounts) -> None:
    said = "1 Ready, 1 Pending; absent (NotFound)"
    place.cluster.until(lambda: said in str(place.seen.node_object(TEAM)), "the condition to name it")
    assert said in place.cluster.kubectl("describe", "gkmcachenode", NODE, "--namespace", TEAM)


def test_a_missing_part_of_the_installation_is_an_event_of_the_configuration(place: Accounts) -> None:
    # The chart's daemons are not in this cluster.
    until_told(place, "gkm-config", "InstallationIncomplete", space=SYSTEM)
    described = place.cluster.kubectl("describe", "configmap", "gkm-config", "--namespace", SYSTEM)
    (line,) = (line for line in described.splitlines() if "InstallationIncomplete" in line)
    assert line.split()[0] == "Warning"
    assert "there is no DaemonSet gkm-agent; there is no DaemonSet gkm-csi" in line
