"""An API in memory that judges the requests of the controllers of task groups, and a stand-in for rendering."""

import copy
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from gkm.api.config import Config
from gkm.api.meta import timestamp
from gkm.api.task_group_rights import NAME as KINDS_CONFIGMAP
from gkm.api.task_group_settings import AllowedKind, TaskGroups
from gkm.kube import decoding
from gkm.kube.api import Object
from gkm.kube.resources import COMPUTEDOMAINS, CONFIGMAPS, EVENTS, GROUPTEMPLATES, POOLS, TASKGROUPS, Json, Resource
from gkm.templates.rendering.renderer import Rendered
from gkm.templates.values import RenderingFailed, RenderingUnavailable
from support.kube.fake_api import FakeApi
from support.operator.plans import PODS

T = TypeVar("T")
NAMESPACE, SYSTEM = "team", "gkm-system"
FINALIZER, LABEL, UID_LABEL = "gkm.io/task-group", "gkm.io/task-group", "gkm.io/task-group-uid"


def kind(api_version: str, name: str, plural: str, *, namespaced: bool = True) -> Resource[Json]:
    return Resource(api_version, name, plural, namespaced=namespaced, type=Json)


def raw(resource: Resource[Any]) -> Resource[Json]:
    return kind(resource.api_version, resource.kind, resource.plural, namespaced=resource.namespaced)


GROUPS, RAW_POOLS, RAW_TEMPLATES = raw(TASKGROUPS), raw(POOLS), raw(GROUPTEMPLATES)
DOMAINS = raw(COMPUTEDOMAINS)
SERVICES = kind("v1", "Service", "services")
SECRETS = kind("v1", "Secret", "secrets")
DEPLOYMENTS = kind("apps/v1", "Deployment", "deployments")
JOBS = kind("batch/v1", "Job", "jobs")
POD_GROUPS = kind("scheduling.volcano.sh/v1beta1", "PodGroup", "podgroups")
OF_GROUPS = (CONFIGMAPS, SERVICES, SECRETS, DEPLOYMENTS, JOBS, POD_GROUPS, DOMAINS)
SERVED = (*OF_GROUPS, GROUPS, RAW_POOLS, RAW_TEMPLATES, PODS, EVENTS)

ON = Config(
    task_groups=TaskGroups(
        enabled=True, allowed_kinds=[*TaskGroups().allowed_kinds, AllowedKind("Secret"), AllowedKind("Job", "batch")]
    )
)
EPOCH = datetime(2026, 3, 1, tzinfo=UTC).timestamp()


def an_object(resource: Resource[Any], name: str, **more: Any) -> Json:  # noqa: ANN401 -- JSON
    """An object of a template; its metadata has the name only."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}} | more


FIVE = (
    an_object(DEPLOYMENTS, "proxy-{{ WF_GROUP_NAME }}", spec={"replicas": 1}),
    an_object(CONFIGMAPS, "files-{{ WF_GROUP_NAME }}", data={"a": "{{ WF_ID }}"}),
    an_object(DOMAINS, "domain-{{ WF_GROUP_UUID }}", spec={"numNodes": 0}),
    an_object(SERVICES, "proxy-{{ WF_GROUP_NAME }}", spec={"clusterIP": "None"}),
    an_object(SECRETS, "certificates-{{ WF_GROUP_NAME }}", stringData={"ca": "secret of {{ WF_GROUP_NAME }}"}),
)


class FakeRenderer:
    """Replaces `{{ NAME }}`; a rule is true if it is `true`. Behind the Protocol that RenderingProcess implements."""

    def __init__(self) -> None:
        self.failures = 0

    def render(self, templates: Sequence[Json], variables: Json, rules: Sequence[str] = ()) -> Rendered:
        if self.failures:
            self.failures -= 1
            raise RenderingUnavailable("the child was killed")
        verdicts = [rule == "true" for rule in rules]
        return Rendered([_rendered(each, variables) for each in templates if all(verdicts)], verdicts)

    def compile(self, template: Json, rules: Sequence[str] = ()) -> list[str]:
        raise NotImplementedError

    def close(self) -> None:
        pass


def _rendered(value: Any, variables: Json) -> Any:  # noqa: ANN401 -- JSON
    if isinstance(value, dict):
        return {key: _rendered(each, variables) for key, each in value.items()}
    if isinstance(value, list):
        return [_rendered(each, variables) for each in value]
    if not isinstance(value, str):
        return value
    try:
        return re.sub(r"\{\{ *(\w+) *\}\}", lambda found: str(variables[found[1]]), value)
    except KeyError as error:
        raise RenderingFailed(f"{error} is undefined") from error


class WitnessApi(FakeApi):
    """Refuses nothing, and remembers what no controller may do."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds = list(SERVED)
        self.served = {(each.api_version, each.plural) for each in SERVED}
        self.wrong: list[str] = []
        self.leaks: list[str] = []
        """Objects that were deleted after the end of their group."""

    def create(self, resource: Resource[T], value: Object, *, field_manager: str = "") -> T:
        with self._lock:
            plain: Json = copy.deepcopy(dict(decoding.plain(value)))
            uid = plain["metadata"].get("labels", {}).get(UID_LABEL)
            if uid and field_manager:
                self._judge_create(resource, plain, uid)
            made = super().create(resource, value, field_manager=field_manager)
            stored = self._objects[resource.plural, plain["metadata"].get("namespace", ""), plain["metadata"]["name"]]
            stored["metadata"].setdefault("creationTimestamp", timestamp(datetime.fromtimestamp(EPOCH, UTC)))
            return made

    def delete(
        self,
        resource: Resource[Any],
        name: str,
        namespace: str | None = None,
        *,
        uid: str = "",
        resource_version: str = "",
        foreground: bool = False,
    ) -> None:
        with self._lock:
            if foreground:
                self._judge_delete(resource, name, namespace or "", uid)
            super().delete(resource, name, namespace, uid=uid, resource_version=resource_version, foreground=foreground)

    def _judge_create(self, resource: Resource[Any], value: Json, uid: str) -> None:
        name = f"{resource.kind} {value['metadata']['name']}"
        remembered = self._objects.get(("configmaps", SYSTEM, KINDS_CONFIGMAP), {}).get("data", {})
        group, _, _ = resource.api_version.rpartition("/")
        if ".".join(filter(None, [resource.kind, group])) not in remembered:
            self.wrong.append(f"{name} is created before its kind is remembered")
        found = self._group(uid)
        if found is None:
            return  # a process that does not lead any more
        named = [(each["kind"], each["name"]) for each in found.get("status", {}).get("objects", [])]
        if (resource.kind, value["metadata"]["name"]) not in named:
            self.wrong.append(f"{name} is created before the status names it")
        if FINALIZER not in found["metadata"].get("finalizers", []):
            self.wrong.append(f"{name} is created before the finalizer")
        if value["metadata"]["namespace"] != found["metadata"]["namespace"]:
            self.wrong.append(f"{name} is created in another namespace")

    def _judge_delete(self, resource: Resource[Any], name: str, namespace: str, uid: str) -> None:
        found = self._objects.get((resource.plural, namespace, name))
        if found is None or found["metadata"]["uid"] != uid:
            return  # the API server refuses it
        labels, owners = found["metadata"].get("labels", {}), found["metadata"].get("ownerReferences", [])
        of_group = labels.get(UID_LABEL) or next((one["uid"] for one in owners if one["kind"] == GROUPS.kind), "")
        if not of_group:
            self.wrong.append(f"{resource.kind} {name} is deleted, and no group created it")
        group = self._group(of_group)
        phase = group.get("status", {}).get("phase", "Pending") if group is not None else "gone"
        if phase in {"Pending", "Running"}:
            self.wrong.append(f"{resource.kind} {name} is deleted while its group runs")
        elif phase != "Ending":
            self.leaks.append(f"{resource.kind} {name}")

    def _group(self, uid: str) -> Json | None:
        groups = (value for key, value in self._objects.items() if key[0] == "taskgroups")
        return next((each for each in groups if each["metadata"]["uid"] == uid), None)


def everything_of(api: WitnessApi, resource: Resource[Json]) -> list[Json]:
    """Every object of a kind, also if it is not served."""
    return api.stored(resource.plural)
