"""Task groups on a real API server whose controllers are killed, or which goes away; their rights and requests."""

import json
import random
import time
from typing import Any

import pytest
from support.cluster.rights import until_rights_hold
from support.operator.deployment import SHORT_LEASE, component
from support.operator.group_cluster import (
    CONFIG,
    DOMAIN,
    FIVE,
    NAME,
    POD_GROUPS,
    PROXY,
    SERVICE,
    TEAM,
    UID_LABEL,
    GroupCluster,
    template,
)
from support.operator.rights import DOMAINS, TASK_GROUPS, authorized

pytestmark = pytest.mark.timeout(900)
FORBIDDEN = 403
PHASES = {"Succeeded", "Failed", "Canceled"}
Json = dict[str, Any]


def leak(place: GroupCluster, name: str, group: str) -> Json:
    """An object of a group, as a stopped leader may create it late."""
    uid = place.group(group)["metadata"]["uid"]
    owner = {"apiVersion": "gkm.io/v1alpha1", "kind": "TaskGroup", "name": group, "uid": uid}
    labels = {"gkm.io/task-group": group, UID_LABEL: uid}
    return CONFIG | {"metadata": {"name": name, "namespace": TEAM, "labels": labels, "ownerReferences": [owner]}}


def test_a_leak_of_a_group_that_has_ended_is_found_by_the_next_leader(place: GroupCluster) -> None:
    process = place.controllers(main=SHORT_LEASE)
    place.pool("leak", CONFIG)
    place.groups("leak", pool="leak")
    place.until_phase("Running", "leak")
    place.end("leak")
    place.until_phase("Succeeded", "leak")
    process.kill()
    leaked = leak(place, "leaked", "leak")
    labeled = leak(place, "labeled", "leak")
    del labeled["metadata"]["ownerReferences"]
    place.cluster.apply([leaked, labeled])
    process = place.controllers()
    place.until(lambda: "leaked" not in place.of_kind("configmaps"), "the leak to go")
    assert '"event": "object of an ended task group found, to be deleted"' in process.log.read_text(encoding="utf-8")
    place.delete("leak")
    place.until_gone("leak")
    assert place.left() == ["configmaps/labeled"]
    place.cluster.kubectl("delete", "configmap", "labeled", "--namespace", TEAM)
    process.stop(30)


def test_controllers_that_are_killed_at_any_moment_leave_nothing(place: GroupCluster) -> None:
    """Two leaders at once, each killed again and again while groups are created, end and are deleted."""
    chance = random.Random(3)
    place.controllers().stop(30)  # the pool is parsed by somebody
    processes = [place.controllers(main=SHORT_LEASE), place.controllers(second=True, main=SHORT_LEASE)]
    place.pool("killed", *FIVE)
    names = [f"killed-{number}" for number in range(24)]
    place.groups(*names[:12], pool="killed")
    for step in range(8):
        number = step % 2
        time.sleep(chance.uniform(0.0, 2.5))  # any moment: that is the fault
        processes[number].kill()
        if step == 1:
            place.groups(*names[12:], pool="killed")
        if step == 3:
            place.end(*names[:8], phase="Failed")
        if step == 5:
            place.delete(*names[8:16])
        processes[number] = place.controllers(second=number == 1, main=SHORT_LEASE)
    place.end(*names[16:])

    place.until(lambda: set(place.phases().values()) <= PHASES, "all groups to end", 180)
    assert set(place.phases()) == {*names[:8], *names[16:]}
    place.until(lambda: not place.left(), "nothing to be left")
    place.delete(*place.phases())
    place.until_gone(*names)
    for process in processes:
        text = process.log.read_text(encoding="utf-8")
        assert "watch handler failed" not in text
        assert "reconcile failed" not in text
        process.stop(30)


def test_an_api_server_that_goes_away_in_the_middle_leaves_nothing(place: GroupCluster) -> None:
    """A leader that could not renew its lease meanwhile ends, and another follows."""
    place.controllers(main=SHORT_LEASE)
    place.pool("away", *FIVE)
    names = [f"away-{number}" for number in range(12)]
    place.groups(*names, pool="away")
    place.cluster.control_plane.restart_apiserver()

    place.until_phase("Running", *names, seconds=180)
    place.delete(*names)
    place.cluster.control_plane.restart_apiserver()
    place.until_gone(*names, seconds=180)
    assert place.left() == []


@pytest.mark.usefixtures("running")
def test_five_objects_cost_at_most_four_requests_each(place: GroupCluster) -> None:
    place.pool("counted", *FIVE)
    place.groups("first", pool="counted")
    place.until_phase("Running", "first")
    before = len(place.requests())
    names = [f"counted-{number}" for number in range(20)]
    place.groups(*names, pool="counted")
    place.until_phase("Running", *names)
    place.delete(*names)
    place.until_gone(*names, seconds=120)
    others = {"leases", "pools", "grouptemplates"}
    sent = [
        each
        for each in place.requests()[before:]
        if each.resource.partition("/")[0] not in others and each.verb not in {"list", "watch"}
    ]
    assert len(sent) / (20 * 5) <= 4.0
    place.delete("first")
    place.until_gone("first")


@pytest.mark.usefixtures("running")
def test_each_right_of_the_component_is_used_and_no_request_is_refused(place: GroupCluster) -> None:
    before = len(place.requests())
    everything = [PROXY, DOMAIN, CONFIG, SERVICE]
    everything += [template(f"{group}/{version}", "PodGroup", spec={"minMember": 1}) for group, version in POD_GROUPS]
    place.pool("all", *everything)
    place.groups("all", pool="all")
    place.until_phase("Running", "all")
    # A name that is taken is read: one group for each kind.
    for number, each in enumerate(everything):
        taken = json.loads(json.dumps(each).replace(NAME, "taken").replace("domain-{{ WF_GROUP_UUID }}", "taken"))
        place.pool(f"taken-{number}", taken)
        place.groups(f"taken-{number}", f"taken-too-{number}", pool=f"taken-{number}")
    place.pool_without_template("no-template")
    place.groups("no-template", pool="no-template")
    place.groups("no-pool", pool="missing")
    place.until_phase("Failed", "no-template", "no-pool")
    taken_names = [f"taken-{number}" for number in range(7)] + [f"taken-too-{number}" for number in range(7)]

    def one_of_two_failed() -> bool:
        found = place.phases()
        return sorted(found[name] for name in taken_names) == ["Failed"] * 7 + ["Running"] * 7

    place.until(one_of_two_failed, "one group of each kind to fail")
    place.cluster.apply(leak(place, "leaked", "no-pool"))
    place.until(lambda: "leaked" not in place.of_kind("configmaps"), "a leak to go")
    names = [*place.phases()]
    place.delete(*names)
    place.until_gone(*names, seconds=120)

    # test_rights_exactly_used.py has those for the webhook configurations, with admission.
    rights = [
        right
        for right in TASK_GROUPS
        if right.account == "gkm-controllers" and right.group != "admissionregistration.k8s.io"
    ]
    assert rights
    # Without the component `domains`, the controllers look now and then whether they may use it; other tests before
    # this one let a quota refuse objects, and take rights away.
    optional = {(right.verb, right.group, right.resource) for right in set(DOMAINS) - set(rights)}
    refused = [each for each in place.requests()[before:] if each.code == FORBIDDEN]
    assert [each for each in refused if (each.verb, each.group, each.resource) not in optional] == []
    requests = [*authorized(place.requests())]
    assert [right for right in rights if not any(right.covers(each) for each in requests)] == []


def test_the_process_ends_at_its_start_without_the_component(place: GroupCluster) -> None:
    name = "gkm-controllers-task-groups"
    bindings = [each for each in component("task-groups") if each["metadata"]["name"] == name]
    place.cluster.kubectl("delete", "clusterrolebinding", name)
    until_rights_hold(place.cluster)
    try:
        with pytest.raises(Exception, match="ended with code 1") as caught:
            place.controllers()
    finally:
        place.cluster.apply(bindings)
        until_rights_hold(place.cluster)
    assert '"error": "TaskGroupsBlocked"' in str(caught.value)
