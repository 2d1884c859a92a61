"""What a workflow engine does to the API server: creates TaskGroups of one pool, and deletes them."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gkm.api.task_groups import GROUP_UID_LABEL
from gkm.kube.api import ListSelector
from gkm.kube.client import HttpApi
from gkm.kube.resources import COMPUTEDOMAINS, CONFIGMAPS, GROUPTEMPLATES, POOLS, TASKGROUPS, Json, Resource
from groups_place import NAMESPACES
from support.cluster.cluster import Cluster

WRITERS = 8
TASKS = 4


def _json(resource: Resource[Any]) -> Resource[Json]:
    return Resource(resource.api_version, resource.kind, resource.plural, namespaced=resource.namespaced, type=dict)


TEMPLATE_KIND, POOL_KIND, GROUP_KIND = (_json(one) for one in (GROUPTEMPLATES, POOLS, TASKGROUPS))
OBJECT_KINDS: tuple[Resource[Json], ...] = (
    _json(COMPUTEDOMAINS),
    _json(CONFIGMAPS),
    Resource("v1", "Service", "services", namespaced=True, type=dict),
    Resource("scheduling.volcano.sh/v1beta1", "PodGroup", "podgroups", namespaced=True, type=dict),
)
_NAME = "{{ WF_GROUP_NAME }}"


def _object(api_version: str, kind: str, name: str = _NAME, **fields: Any) -> Json:  # noqa: ANN401 -- any JSON
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}


OBJECTS = (
    _object(
        "resource.nvidia.com/v1beta1",
        "ComputeDomain",
        spec={"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": _NAME}}},
    ),
    _object("v1", "ConfigMap", "settings-" + _NAME, data={"WORKFLOW": "{{ WF_ID }}", "TASKS": "{{ TASKS | length }}"}),
    _object(
        "v1",
        "ConfigMap",
        "hosts-" + _NAME,
        data={"hosts": "{% for task in TASKS %}{{ task.WF_TASK_NAME }}.{{ WF_ID }}\n{% endfor %}"},
    ),
    _object("v1", "Service", spec={"clusterIP": "None", "selector": {"group": _NAME}, "ports": [{"port": 80}]}),
    _object("scheduling.volcano.sh/v1beta1", "PodGroup", spec={"minMember": "{{ TASKS | length | int }}"}),
)
"""What each group gets: five objects of four kinds, of which no controller makes more."""


def create_pool(api: HttpApi) -> None:
    """Create the templates and their pool."""
    names = [f"bench-{number}" for number in range(len(OBJECTS))]
    for name, value in zip(names, OBJECTS, strict=True):
        api.create(TEMPLATE_KIND, _object("gkm.io/v1alpha1", "GroupTemplate", name, spec={"template": value}))
    api.create(POOL_KIND, _object("gkm.io/v1alpha1", "Pool", "bench", spec={"commonGroupTemplates": names}))


def task_group(number: int) -> Json:
    """Return a TaskGroup; they are spread over all namespaces."""
    tasks = [{"name": f"task-{task}", "gpus": 4} for task in range(TASKS)]
    workflow = {
        "id": f"workflow-{number:04}",
        "uuid": f"{number:08x}-0000-4000-8000-000000000000",
        "submittedBy": "jane",
    }
    made = _object("gkm.io/v1alpha1", "TaskGroup", f"group-{number:04}")
    made["metadata"]["namespace"] = NAMESPACES[number % len(NAMESPACES)]
    # With a phase, only the engine ends the group.
    return made | {"spec": {"pool": "bench", "workflow": workflow, "tasks": tasks, "phase": "Running"}}


def create_groups(api: HttpApi, count: int) -> None:
    """Create TaskGroups at once."""
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(lambda number: api.create(GROUP_KIND, task_group(number)), range(count)))


def delete_groups(api: HttpApi, count: int) -> None:
    """Delete TaskGroups at once."""
    places = [task_group(number)["metadata"] for number in range(count)]
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(lambda place: api.delete(GROUP_KIND, place["name"], place["namespace"]), places))


def count_of(cluster: Cluster, resource: Resource[Json]) -> int:
    """Return the number of objects of a kind, by a list of one."""
    found = json.loads(cluster.kubectl("get", "--raw", f"{resource.path()}?limit=1"))
    return len(found["items"]) + int(found["metadata"].get("remainingItemCount", 0))


def phases(api: HttpApi) -> list[str]:
    """Return the phase of every TaskGroup."""
    pages = api.list_pages(GROUP_KIND)
    return [entry.value.get("status", {}).get("phase", "") for page in pages for entry in page.entries]


def left(api: HttpApi) -> int:
    """Return how many objects have the label of a group."""
    selector = ListSelector(labels=GROUP_UID_LABEL)
    return sum(len(page.entries) for kind in OBJECT_KINDS for page in api.list_pages(kind, selector))
