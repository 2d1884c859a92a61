"""A change of an object or pod costs the same however many a user has made for a group."""

from collections.abc import Callable

import pytest
from gkm.api.meta import OwnerReference
from gkm.kube.discovery import KindName
from gkm_operator.pods import PodMetadata, WatchedPod
from gkm_operator.taskgroups.members import GroupMember, MemberMetadata
from support.host.steps import steps
from support.operator.group_witness import GROUPS, LABEL, NAMESPACE, UID_LABEL
from support.operator.taskgroups import Process, World

KIND, FEW, MANY = KindName("", "ConfigMap"), 5, 2000
DELETED = "2026-03-01T12:00:00Z"


def metadata(name: str, uid: str, *, since: str | None = None) -> MemberMetadata:
    owner = OwnerReference(GROUPS.api_version, GROUPS.kind, "g", uid)
    labels = {LABEL: "g", UID_LABEL: uid}
    return MemberMetadata(
        name, NAMESPACE, f"uid-{name}", deletion_timestamp=since, labels=labels, owner_references=(owner,)
    )


def task_pod(name: str) -> WatchedPod:
    return WatchedPod(PodMetadata(name, NAMESPACE, f"uid-{name}", labels={LABEL: "g"}))


def crowded(count: int) -> tuple[Process, str]:
    """A process that knows a living group with so many objects and pods, and its uid."""
    world = World()
    uid = world.group()
    process = Process(world)
    world.settle(process)
    for number in range(count):
        process.controller._member_changed(None, GroupMember(KIND, metadata(f"o-{number}", uid)))
        process.controller.watcher._pod(None, task_pod(f"p-{number}"))
    return process, uid


def member_events(process: Process, uid: str) -> None:
    one, going = (GroupMember(KIND, metadata("one", uid, since=since)) for since in (None, DELETED))
    for old, new in ((None, one), (one, one), (one, going), (going, None)):
        process.controller._member_changed(old, new)


def leak_events(process: Process, _uid: str) -> None:
    member_events(process, "another")


def pod_events(process: Process, _uid: str) -> None:
    pod = task_pod("one")
    for old, new in ((None, pod), (pod, pod), (pod, None)):
        process.controller.watcher._pod(old, new)


def group_events(process: Process, _uid: str) -> None:
    process.controller._group_changed((NAMESPACE, "g"))


def sights(process: Process, uid: str) -> None:
    inventory = process.controller._inventory
    for name in ("o-0", "never"):
        for own in ("", f"uid-{name}"):
            inventory.sight((NAMESPACE, "g"), uid, KIND, name, own)


@pytest.mark.parametrize("action", [member_events, leak_events, pod_events, group_events, sights])
def test_the_cost_does_not_depend_on_the_number(action: Callable[[Process, str], None]) -> None:
    def cost(count: int) -> int:
        process, uid = crowded(count)
        return steps(lambda: action(process, uid))

    assert cost(FEW) > 0
    assert cost(MANY) <= 1.5 * cost(FEW)
