"""A group that the API server would not store with its objects fails, with the cause: it does not wait for ever."""

from collections.abc import Callable
from typing import Any

import pytest
from gkm.api.task_groups import MAX_GROUP_BYTES
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS
from support.kube.interposed_api import Around, Call
from support.operator.group_witness import DEPLOYMENTS, an_object
from support.operator.taskgroups import Process, World

ETCD = ApiError(500, "", "etcdserver: request is too large")
CLIENT_OF_ETCD = ApiError(500, "", "rpc error: code = ResourceExhausted desc = trying to send message larger than max")
BODY = ApiError(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728")
SCHEMA = ApiError(422, "Invalid", "status.objects[0].manifest: Invalid value")
BAD = ApiError(400, "BadRequest", "it cannot be decoded")
BROKEN = ApiError(500, "InternalError", "not now")
PLANNED, CREATED = 2, 3
"""The number of the write of the group: the first adds the finalizer."""


def refusing_writes(error: ApiError, *numbers: int) -> Around:
    """Refuse the writes of groups with these numbers, from 1."""
    count = 0

    def around(call: Call, send: Callable[[], Any]) -> Any:  # noqa: ANN401 -- any answer
        nonlocal count
        if (call.verb, call.plural) == ("merge", "taskgroups"):
            count += 1
            if count in numbers:
                raise error
        return send()

    return around


@pytest.mark.parametrize("write", [PLANNED, CREATED])
@pytest.mark.parametrize(
    ("error", "reason"),
    [(ETCD, "TooLarge"), (CLIENT_OF_ETCD, "TooLarge"), (BODY, "TooLarge"), (SCHEMA, "Refused"), (BAD, "Refused")],
)
def test_a_group_whose_status_is_not_stored_fails_for_good(
    error: ApiError, reason: str, write: int, world: World
) -> None:
    world.group()
    process = Process(world, refusing_writes(error, write))
    world.settle(process)
    assert (world.phase(), world.objects()) == ("Failed", [])
    status, found, message = world.condition("ObjectsCreated")
    assert (status, found) == ("False", reason)
    assert message == f"the API server does not store the status with the objects of the group: {error.message}"
    assert world.events() == [("Warning", reason)]
    assert not any("manifest" in each for each in world.status().get("objects", []))
    world.delete()
    world.settle(process)
    assert world.groups() == []
    world.check()


def test_a_write_that_may_succeed_later_is_repeated(world: World) -> None:
    world.group()
    process = Process(world, refusing_writes(BROKEN, PLANNED, PLANNED + 1))
    world.settle(process)
    assert world.phase() == "Running"
    assert len(process.errors) == 2
    world.check()


def test_a_large_spec_that_slipped_in_is_not_rendered(world: World) -> None:
    labels = {f"key-{number}": "<" * 60 for number in range(2)}
    world.group(tasks=[{"name": f"t{number}", "labels": labels} for number in range(1024)])
    world.settle(Process(world))
    assert (world.phase(), world.objects()) == ("Failed", [])
    status, reason, message = world.condition("ObjectsCreated")
    assert (status, reason) == ("False", "TooLarge")
    assert f"the limit is {MAX_GROUP_BYTES}: shorten the largest part" in message


def test_objects_that_take_six_bytes_for_each_character_fail_the_group() -> None:
    text = "{{ WF_ID }}" + "<" * (MAX_GROUP_BYTES // 12)
    world = World(*(an_object(kind, "a", data={"a": text}) for kind in (CONFIGMAPS, DEPLOYMENTS)))
    world.group()
    world.settle(Process(world))
    assert (world.phase(), world.objects()) == ("Failed", [])
    assert world.condition("ObjectsCreated")[1] == "TooLarge"
