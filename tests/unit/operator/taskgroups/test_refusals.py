"""Why objects of a group are not created: for good, or until a cause has passed."""

from collections.abc import Callable

import pytest
from gkm.api.config import Config
from gkm.api.task_group_settings import AllowedKind, TaskGroups
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS, Json, Resource
from support.operator import group_witness, taskgroups
from support.operator.group_witness import DOMAINS, JOBS, RAW_POOLS, RAW_TEMPLATES, SERVED, FakeRenderer, an_object
from support.operator.plans import PODS
from support.operator.taskgroups import Process, World, refusing, settled, template

CM = an_object(CONFIGMAPS, "files-{{ WF_GROUP_NAME }}", data={"a": "b"})
ANNOTATED = an_object(JOBS, "a", metadata={"name": "a", "annotations": "no object"})


def delete_held(world: World, resource: Resource[Json], name: str) -> None:
    """Delete what a finalizer of another controller holds."""
    world.hold(resource, name)
    world.api.delete(resource, name)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda world: world.api.delete(RAW_POOLS, "pool"), "PoolMissing"),
        (lambda world: world.api.delete(RAW_TEMPLATES, "t1"), "TemplateMissing"),
        (lambda world: delete_held(world, RAW_POOLS, "pool"), "PoolMissing"),
        (lambda world: delete_held(world, RAW_TEMPLATES, "t1"), "TemplateMissing"),
        (lambda world: template(world, an_object(CONFIGMAPS, "a", metadata={})), "TemplateInvalid"),
        (lambda world: template(world, an_object(PODS, "a")), "TemplateInvalid"),
        (lambda world: template(world, ANNOTATED), "TemplateInvalid"),
        (lambda world: template(world, an_object(CONFIGMAPS, "{{ NOTHING }}")), "RenderingFailed"),
        (lambda world: template(world, CM, validation=[{"expression": "false"}]), "RuleNotMet"),
    ],
)  # fmt: skip
def test_a_group_that_cannot_be_planned_fails(change: Callable[[World], object], reason: str, world: World) -> None:
    change(world)
    world.group()
    settled(world)
    assert (world.phase(), world.objects()) == ("Failed", [])
    assert world.condition("ObjectsCreated")[:2] == ("False", reason)
    assert world.condition("ObjectsDeleted")[:2] == ("True", "Deleted")
    assert world.events() == [("Warning", reason)]


def test_a_rule_is_met_and_its_message_explains_if_not() -> None:
    world = World(CM)
    template(world, CM, validation=[{"expression": "true"}, {"expression": "false", "message": "at least 2 tasks"}])
    world.group()
    settled(world)
    assert world.condition("ObjectsCreated") == ("False", "RuleNotMet", "at least 2 tasks")
    template(world, CM, validation=[{"expression": "true"}])
    world.group("next")
    settled(world)
    assert world.phase("next") == "Running"


def test_a_rendering_that_is_not_possible_now_is_repeated(world: World) -> None:
    renderer = FakeRenderer()
    renderer.failures = 2
    world.group()
    process = Process(world, renderer=renderer)
    process.run()
    assert world.condition("ObjectsCreated") == ("False", "Retrying", "the child was killed")
    world.settle(process)
    assert world.phase() == "Running"


def test_templates_that_the_watch_does_not_show_yet_are_read(world: World) -> None:
    process = Process(world)
    process.observe()
    world.template("late", CM)
    world.api.create(RAW_POOLS, an_object(RAW_POOLS, "late", spec={"commonGroupTemplates": ["late"]}))
    world.group(pool="late")
    process.observe("taskgroups")
    process.work()
    assert world.phase() == "Running"


def test_a_template_that_was_replaced_while_the_watch_lags_is_read(world: World) -> None:
    process = Process(world)
    delete_held(world, RAW_TEMPLATES, "t1")
    process.observe()
    world.api.merge(RAW_TEMPLATES, "t1", {"metadata": {"finalizers": None}})
    world.template("t1", CM)
    world.group()
    process.observe("taskgroups")
    process.work()
    assert world.phase() == "Running"


def test_a_kind_that_left_the_configuration_is_not_created(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.api.fault = refusing("create", "deployments", ApiError(500, "InternalError", "not now"))
    world.group()
    world.settle(Process(world))
    assert world.phase() == "Pending"
    world.api.fault = lambda _verb, _plural: None
    fewer = [AllowedKind("ConfigMap"), AllowedKind("Service"), AllowedKind("Secret")]
    monkeypatch.setattr(taskgroups, "ON", Config(task_groups=TaskGroups(enabled=True, allowed_kinds=fewer)))
    settled(world)
    assert (world.phase(), world.objects()) == ("Failed", [])
    assert world.condition("ObjectsCreated")[:2] == ("False", "KindNotAllowed")


def test_a_cluster_scoped_kind_is_never_created(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    namespaces = group_witness.kind("v1", "Namespace", "namespaces", namespaced=False)
    world.api.kinds.append(namespaces)
    assert world.api.served is not None
    world.api.served.add(("v1", "namespaces"))
    monkeypatch.setattr(
        taskgroups, "ON", Config(task_groups=TaskGroups(enabled=True, allowed_kinds=[AllowedKind("Namespace")]))
    )
    template(world, an_object(namespaces, "other"))
    world.api.merge(RAW_POOLS, "pool", {"spec": {"commonGroupTemplates": ["t0"]}})
    world.group()
    world.settle(Process(world))
    assert world.phase() == "Pending"
    assert "does not serve Namespace of v1 in namespaces" in world.condition("ObjectsCreated")[2]
    assert [call for call in world.api.calls if call[:2] == ("create", "namespaces")] == []


@pytest.mark.parametrize(
    ("error", "phase", "reason"),
    [
        (ApiError(403, "Forbidden", "exceeded quota: small"), "Pending", "Retrying"),
        (ApiError(500, "InternalError", "a webhook did not answer"), "Pending", "Retrying"),
        (ApiError(409, "Conflict", "the quota has been modified"), "Pending", "Retrying"),
        (ApiError(422, "Invalid", "spec.replicas: is no number"), "Failed", "Refused"),
        (ApiError(400, "BadRequest", "admission webhook denied the request"), "Failed", "Refused"),
    ],
)
def test_a_refused_object_is_retried_or_refused_for_good(
    error: ApiError, phase: str, reason: str, world: World
) -> None:
    world.api.fault = refusing("create", "deployments", error)
    world.group()
    process = Process(world)
    world.settle(process)
    assert (world.phase(), world.condition("ObjectsCreated")) == (
        phase,
        ("False", reason, f"Deployment proxy-g: {error.message}"),
    )
    assert world.events() == [("Warning", reason)]
    assert len(world.objects()) == (4 if phase == "Pending" else 0)
    world.api.fault = lambda _verb, _plural: None
    world.settle(process)
    assert world.phase() == ("Running" if phase == "Pending" else "Failed")
    world.check()


def test_a_kind_that_is_installed_later_is_waited_for(world: World) -> None:
    domains = next(each for each in SERVED if each.plural == DOMAINS.plural)
    world.remove_kind(domains)
    world.group()
    process = Process(world)
    world.settle(process)
    assert world.condition("ObjectsCreated")[1] == "Retrying"
    world.api.kinds.append(domains)
    assert world.api.served is not None
    world.api.served.add((domains.api_version, domains.plural))
    world.settle(process)
    assert world.phase() == "Running"


def test_a_secret_whose_template_changed_before_it_was_created_fails_the_group(world: World) -> None:
    world.api.fault = refusing("create", "secrets", ApiError(500, "InternalError", "not now"))
    world.group()
    world.settle(Process(world))
    world.api.fault = lambda _verb, _plural: None
    world.api.merge(RAW_TEMPLATES, "t4", {"spec": {"template": {"metadata": {"name": "other"}}}})
    settled(world)
    assert (world.phase(), world.objects()) == ("Failed", [])
    assert world.condition("ObjectsCreated")[1:] == (
        "TemplateInvalid",
        "the templates of the pool do not render to Secret certificates-g any more",
    )
