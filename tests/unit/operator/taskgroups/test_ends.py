"""When a group ends, and what may delay the end of its objects."""

import pytest
from gkm.kube.discovery import KindName
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS
from support.operator import group_witness
from support.operator.group_witness import DOMAINS, NAMESPACE, SERVED, SERVICES
from support.operator.plans import PODS
from support.operator.taskgroups import World, refusing, settled


@pytest.mark.parametrize(
    ("tasks", "phases", "phase"),
    [
        (2, ("Running", "Succeeded"), "Running"),
        (2, ("Succeeded", "Succeeded"), "Succeeded"),
        (2, ("Failed", "Succeeded", "Succeeded"), "Succeeded"),
        (2, ("Failed", "Succeeded"), "Failed"),
        (0, ("Failed",), "Failed"),
        (0, ("Succeeded",), "Succeeded"),
        (2, (), "Running"),
    ],
)
def test_a_group_ends_with_its_pods(tasks: int, phases: tuple[str, ...], phase: str, world: World) -> None:
    world.group(tasks=[{"name": f"t{number}"} for number in range(tasks)])
    process = settled(world)
    for number, of_pod in enumerate(phases):
        world.pod(f"p{number}", of_pod)
    process.run()
    if phase == "Failed":
        assert world.phase() == "Running"  # a Job may retry
    for _ in range(25):
        world.seconds += 31
        process.run()
        world.act()
    assert world.phase() == phase


def test_a_group_whose_pods_were_deleted_has_failed(world: World) -> None:
    world.group()
    process = settled(world)
    world.pod("p")
    process.run()
    world.api.delete(PODS, "p", NAMESPACE)
    for _ in range(30):
        world.seconds += 31
        process.run()
        world.act()
    assert world.phase() == "Failed"


def test_pods_of_an_earlier_group_of_the_name_do_not_end_a_group(world: World) -> None:
    world.pod("old", "Succeeded", created=-60)
    world.group()
    settled(world)
    assert world.phase() == "Running"


def test_the_engine_decides_alone_while_it_says_running(world: World) -> None:
    world.group(phase="Running")
    process = settled(world)
    world.pod("p", "Succeeded")
    world.settle(process)
    assert world.phase() == "Running"
    world.end("Canceled")
    world.settle(process)
    assert world.phase() == "Canceled"


def test_an_object_of_a_version_that_ended_is_deleted_in_the_next_one(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    old = next(each for each in SERVED if each.plural == DOMAINS.plural)
    new = group_witness.kind("resource.nvidia.com/v1", "ComputeDomain", "computedomains")
    world.group()
    process = settled(world)
    of_domains = KindName.of(old.api_version, old.kind)
    process.controller.kinds.missing(of_domains)
    assert process.controller.kinds.served(of_domains) == (old,)  # and so for the next minute
    assert world.api.served is not None
    world.api.served = world.api.served - {(old.api_version, old.plural)} | {(new.api_version, new.plural)}
    world.api.kinds = [new if each is old else each for each in world.api.kinds]
    world.end()
    world.settle(process)
    assert (world.phase(), world.objects()) == ("Succeeded", [])
    # The path of the old version was gone, and not the object.
    assert "object of an ended task group found" not in caplog.text
    world.check()


def test_an_object_with_a_finalizer_of_another_is_waited_for_and_named(world: World) -> None:
    world.group()
    process = settled(world)
    world.api.merge(SERVICES, "proxy-g", {"metadata": {"finalizers": ["a.test/b"]}}, NAMESPACE)
    world.delete()
    world.settle(process)
    assert (world.phase(), world.objects()) == ("Ending", ["Service proxy-g"])
    status, reason, message = world.condition("ObjectsDeleted")
    assert (status, reason) == ("False", "FinalizersPending")
    assert "Service proxy-g (finalizers: a.test/b)" in message
    assert len([call for call in world.api.calls if call[:2] == ("delete", "services")]) == 1
    assert world.events() == [("Warning", "FinalizersPending")]
    world.api.merge(SERVICES, "proxy-g", {"metadata": {"finalizers": None}}, NAMESPACE)
    world.settle(process)
    assert world.groups() == []
    world.check()


def test_a_kind_that_is_removed_while_its_objects_are_being_deleted_has_no_objects(world: World) -> None:
    uid = world.group()
    process = settled(world)
    finalizers = {"metadata": {"finalizers": ["a.test/b"]}}
    world.api.merge(DOMAINS, f"domain-{uid}", finalizers, NAMESPACE)
    world.delete()
    world.settle(process)
    assert world.phase() == "Ending"
    world.remove_kind(DOMAINS)
    world.settle(process)
    assert world.groups() == []


def test_a_missing_right_is_named_and_the_other_objects_go(world: World) -> None:
    world.group()
    process = settled(world)
    denied = 'services "proxy-g" is forbidden: User "x" cannot delete resource "services" in API group ""'
    world.api.fault = refusing("delete", "services", ApiError(403, "Forbidden", denied))
    world.delete()
    world.settle(process)
    assert (world.phase(), world.objects()) == ("Ending", ["Service proxy-g"])
    status, reason, message = world.condition("ObjectsDeleted")
    assert (status, reason) == ("False", "RightsMissing")
    assert denied in message
    assert "gkm template rights" in message
    world.api.fault = lambda _verb, _plural: None
    world.settle(process)
    assert world.groups() == []


def test_what_is_gone_is_not_deleted_again_while_another_object_stays(world: World) -> None:
    world.group()
    process = settled(world)
    world.api.merge(SERVICES, "proxy-g", {"metadata": {"finalizers": ["a.test/b"]}}, NAMESPACE)
    world.api.delete(CONFIGMAPS, "files-g", NAMESPACE)
    world.delete()
    for _ in range(9):
        world.act()
        process.run()
        world.seconds += 11
    deletes = [plural for verb, plural, _ in world.api.calls if verb == "delete"]
    # Those that were there, and once more where the list no longer showed them; one list shows no steps between.
    assert deletes.count("services") == 1
    assert max(deletes.count(plural) for plural in deletes) <= 3
    writes = [plural for verb, plural, _ in world.api.calls if verb == "merge" and plural == "taskgroups"]
    assert len(writes) <= 6
