"""Large TaskGroups on a real API server: what etcd refuses, and the memory of the controllers' container."""

import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from gkm.kube.client import HttpApi, connect
from support.cluster.policies import until_policies_hold
from support.host.memory import MemoryGroup, memory_of
from support.host.processes import Process
from support.kube.our_kinds import CONTROLLERS
from support.operator.deployment import operator_command
from support.operator.group_cluster import GANG, NAME, SERVICE, TEAM, GroupCluster, template
from support.operator.group_witness import GROUPS
from support.operator.limited import ARENAS, MIB, container_limit

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]
Json = dict[str, Any]
COUNT, SHIPPED_FOR = 40, 100
NESTED = json.loads("[" + ",".join(["[[[[[[]]]]]]"] * 6_000) + "]")
"""78 kB of JSON, and 3 MiB once it is decoded: two objects of 40 groups have 240 MiB, those of 100 have 600 MiB."""
IDLE = 128 * MIB
"""What the controllers have without groups."""
_POLICY = template("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "too-large")
_RULE = {"apiGroups": ["gkm.io"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["taskgroups/status"]}
_VALIDATION = {
    "expression": "object.metadata.name != 'refused' || !has(object.status.objects)",
    "message": "too large for this cluster",
    "reason": "RequestEntityTooLarge",
}
REFUSING = [
    _POLICY | {"spec": {"matchConstraints": {"resourceRules": [_RULE]}, "validations": [_VALIDATION]}},
    _POLICY
    | {"kind": "ValidatingAdmissionPolicyBinding", "spec": {"policyName": "too-large", "validationActions": ["Deny"]}},
]
"""What an API server does whose etcd takes less: it answers 413."""


def group(name: str, pool: str, tasks: int, labels: int) -> Json:
    names = [f"{label:0>16}" for label in range(labels)]
    listed = [{"name": f"task-{number}", "labels": dict.fromkeys(names, "")} for number in range(tasks)]
    made = template("gkm.io/v1alpha1", "TaskGroup", name, spec={"pool": pool, "tasks": listed})
    return made | {"metadata": {"name": name, "namespace": TEAM}}


def parsed(place: GroupCluster, name: str, *templates: Json) -> HttpApi:
    """Create a pool that controllers have parsed, which then stop; return the API of an administrator."""
    process = place.controllers()
    place.pool(name, *templates)
    process.stop(30)
    return connect(str(place.cluster.kubeconfig))


def together(act: Callable[[str], object], names: Iterable[str]) -> None:
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(act, names))


def until_each(place: GroupCluster, process: Process, phase: str, names: Iterable[str]) -> None:
    """Wait for groups one by one: a list of all of them has tens of MB."""
    for name in names:
        process.ready(lambda: place.phase(name) == phase, f"{name} is {phase}", 300)  # noqa: B023 -- called at once


def gone(place: GroupCluster, process: Process, name: str) -> None:
    """Nothing of a group that failed is left, and it can be deleted."""
    assert place.left() == []
    place.delete(name)
    place.until_gone(name)
    process.stop(30)


@contextmanager
def within_container(place: GroupCluster) -> Iterator[Process]:
    """Run the controllers as they ship, within the memory that their container has for this many groups.

    The container must be enough for SHIPPED_FOR groups. An API server needs seconds of a processor for each, so
    there are fewer, and they get their share.
    """
    config = place.directory / "large.yaml"
    config.write_text("taskGroups: {enabled: true}\n", encoding="utf-8")
    words = [f"--config={config}", f"--kubeconfig={place.cluster.kubeconfig_for(CONTROLLERS)}", "--identity=large"]
    share = IDLE + (container_limit("gkm-controllers") - IDLE) * COUNT // SHIPPED_FOR
    with MemoryGroup.of(share) as limited:
        command = limited.command(operator_command("controllers", *words, "--health=127.0.0.1:0"))
        process = Process.start("controllers", command, place.directory / "large.log", ARENAS)
        try:
            yield process
            assert process.popen.poll() is None, process.tail()
            assert memory_of(process.pid, "VmHWM") < limited.limit
        finally:
            process.stop(30)


def test_a_group_that_etcd_would_refuse_with_its_objects_fails_with_the_sizes(place: GroupCluster) -> None:
    api = parsed(place, "escaped", SERVICE, template("v1", "ConfigMap", data={"text": "<" * 80_000}))
    body = group("escaped", "escaped", 1, 0)
    body["metadata"]["annotations"] = {"a.test/b": "<" * 200_000}
    api.create(GROUPS, body)
    process = place.controllers()
    place.until_phase("Failed", "escaped")
    status, reason, message = place.condition("ObjectsCreated", "escaped")
    assert (status, reason) == ("False", "TooLarge")
    assert "(metadata 1200" in message
    gone(place, process, "escaped")


def test_a_group_whose_status_the_api_server_refuses_fails_and_goes(place: GroupCluster) -> None:
    parsed(place, "refused", SERVICE)
    place.cluster.apply(REFUSING)
    until_policies_hold(place.cluster)
    process = place.controllers()
    place.groups("refused", pool="refused")
    place.until_phase("Failed", "refused")
    status, reason, message = place.condition("ObjectsCreated", "refused")
    assert (status, reason) == ("False", "TooLarge")
    assert message.startswith("the API server does not store the status with the objects of the group: ")
    assert "too large for this cluster" in message
    gone(place, process, "refused")


def test_large_groups_do_not_take_more_memory_than_the_container_has(place: GroupCluster) -> None:
    api = parsed(
        place,
        "large",
        *(GANG | {"metadata": {"name": f"{NAME}-{number}"}, "spec": {"x": NESTED}} for number in range(2)),
    )
    names = [f"large-{number}" for number in range(COUNT)]
    together(lambda name: api.create(GROUPS, group(name, "large", 1, 0)), names)
    with within_container(place) as process:
        until_each(place, process, "Running", names)
    with within_container(place):  # these never rendered them
        together(lambda name: api.delete(GROUPS, name, TEAM), names)
        place.until_gone(*names, seconds=300)
