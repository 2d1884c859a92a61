"""The controllers of task groups step by step over an API in memory, with users and a garbage collector."""

import copy
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from gkm.api.meta import timestamp
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS, EVENTS, Json, Resource
from gkm.kube.workqueue import Retry, WorkQueue
from gkm_operator.taskgroups.controller import TaskGroupsController
from support.kube.garbage import collect_garbage
from support.kube.interposed_api import Around, InterposedApi
from support.kube.leading import leading
from support.kube.listing import Watched, list_now
from support.operator.group_witness import (
    EPOCH,
    FIVE,
    GROUPS,
    LABEL,
    NAMESPACE,
    OF_GROUPS,
    ON,
    RAW_POOLS,
    RAW_TEMPLATES,
    SYSTEM,
    UID_LABEL,
    FakeRenderer,
    WitnessApi,
    an_object,
    everything_of,
)
from support.operator.plans import PODS, everything


class World:
    """What users and other controllers do; time stands still unless a test lets it pass."""

    def __init__(self, *templates: Json, pool: str = "pool") -> None:
        self.api = WitnessApi()
        self.seconds = 0.0
        self.collects_orphans = True
        """Whether the garbage collector deletes what groups owned that are gone."""
        self.foreign: list[Json] = []
        for number, template in enumerate(templates or FIVE):
            self.template(f"t{number}", template)
        names = [f"t{number}" for number in range(len(templates or FIVE))]
        self.api.create(RAW_POOLS, an_object(RAW_POOLS, pool, spec={"commonGroupTemplates": names}))

    def template(self, name: str, template: Json, **spec: Any) -> None:  # noqa: ANN401 -- JSON
        self.api.create(RAW_TEMPLATES, an_object(RAW_TEMPLATES, name, spec={"template": template} | spec))

    def hold(self, resource: Resource[Json], name: str) -> None:
        """Add the finalizer of another controller to a cluster-wide object: after its deletion, it stays."""
        self.api.merge(resource, name, {"metadata": {"finalizers": ["test.example/held"]}})

    def group(self, name: str = "g", **spec: Any) -> str:  # noqa: ANN401 -- JSON
        """Create a TaskGroup; return its uid."""
        body = an_object(GROUPS, name, spec={"pool": "pool", "workflow": {"id": "w"}} | spec)
        body["metadata"]["namespace"] = NAMESPACE
        return str(self.api.create(GROUPS, body)["metadata"]["uid"])

    def own(self, resource: Resource[Json], name: str, **more: Any) -> None:  # noqa: ANN401 -- JSON
        """Create an object of somebody else."""
        body = an_object(resource, name, **more)
        body["metadata"] |= {"namespace": NAMESPACE}
        self.api.create(resource, body)
        self.foreign.append(copy.deepcopy(self.api._objects[resource.plural, NAMESPACE, name]))

    def owned(self, name: str, uid: str, group: str = "g") -> None:
        """Create a ConfigMap with label and ownerReference of a group."""
        owner = {"apiVersion": GROUPS.api_version, "kind": GROUPS.kind, "name": group, "uid": uid}
        body = an_object(CONFIGMAPS, name)
        labels = {LABEL: group, UID_LABEL: uid}
        body["metadata"] |= {"namespace": NAMESPACE, "labels": labels, "ownerReferences": [owner]}
        self.api.create(CONFIGMAPS, body)

    def end(self, phase: str = "Succeeded", name: str = "g") -> None:
        self.api.merge(GROUPS, name, {"spec": {"phase": phase}}, NAMESPACE)

    def delete(self, name: str = "g") -> None:
        self.api.delete(GROUPS, name, NAMESPACE)

    def pod(self, name: str, phase: str = "Running", group: str = "g", created: float = 1.0) -> None:
        """Create a task pod, or change its phase."""
        labels = {
            "labels": {LABEL: group},
            "creationTimestamp": timestamp(datetime.fromtimestamp(EPOCH + created, UTC)),
        }
        body = an_object(PODS, name)
        body["metadata"] |= {"namespace": NAMESPACE} | labels
        with suppress(ApiError):
            self.api.create(PODS, body)
        self.api.apply(PODS, body | {"status": {"phase": phase}}, field_manager="kubelet", subresource="status")

    def remove_kind(self, resource: Resource[Json]) -> None:
        """Remove a CustomResourceDefinition, and all objects with it."""
        with self.api._lock:
            for key in [key for key in self.api._objects if key[0] == resource.plural]:
                self.api._remove(resource, key, self.api._objects[key])
            self.api.kinds.remove(resource)
            assert self.api.served is not None
            self.api.served.discard((resource.api_version, resource.plural))

    def act(self) -> None:
        """Let the garbage collector act once."""
        collect_garbage(self.api, orphans=self.collects_orphans)

    def settle(self, *processes: "Process", rounds: int = 80) -> None:
        """Let everything act in turns until nothing changes, also when time passes."""
        quiet = 0
        for _ in range(rounds):
            before = self.api._version
            self.act()
            waits = [process.run() for process in processes]
            quiet = quiet + 1 if self.api._version == before else 0
            if quiet >= (12 if any(waits) else 3):  # what fails for so long waits for something else
                return
            self.seconds += 31.0 if quiet else 0.1
        raise AssertionError(f"it does not settle: {[process.errors[-3:] for process in processes]}")

    def status(self, name: str = "g") -> Json:
        found: Json = self.api.get(GROUPS, name, NAMESPACE).get("status", {})
        return found

    def phase(self, name: str = "g") -> str:
        return str(self.status(name).get("phase", "Pending"))

    def condition(self, type_: str, name: str = "g") -> tuple[str, str, str]:
        """Status, reason and message of a condition; empty without it."""
        found = (each for each in self.status(name).get("conditions", []) if each["type"] == type_)
        return next(((each["status"], each["reason"], each["message"]) for each in found), ("", "", ""))

    def objects(self) -> list[str]:
        """All objects of groups, as KIND NAME."""
        return sorted(
            f"{each['kind']} {each['metadata']['name']}"
            for resource in OF_GROUPS
            for each in everything_of(self.api, resource)
            if UID_LABEL in each["metadata"].get("labels", {})
        )

    def groups(self) -> list[str]:
        return sorted(each["metadata"]["name"] for each in everything(self.api, GROUPS))

    def events(self) -> list[tuple[str, str]]:
        """Type and reason of every Event."""
        return sorted((each["type"], each["reason"]) for each in everything(self.api, EVENTS))

    def check(self) -> None:
        """Check what always holds: no object of others was touched, and no rule was broken on the way."""
        assert self.api.wrong == []
        for before in self.foreign:
            key = (f"{before['kind'].lower()}s", NAMESPACE, before["metadata"]["name"])
            assert self.api._objects[key] == before
        assert self.api.field_managers <= {"", "gkm"}


class Process:
    """One process with the controllers: it observes and works only when a test asks for it."""

    def __init__(self, world: World, around: Around | None = None, renderer: FakeRenderer | None = None) -> None:
        self.world = world
        self.errors: list[str] = []
        self.leads = True
        api = world.api if around is None else InterposedApi(world.api, _without_lists(around))
        self.controller = TaskGroupsController(
            leading(api, lambda: self.leads),
            ON,
            namespace=SYSTEM,
            renderer=renderer or FakeRenderer(),
            clock=lambda: world.seconds,
            now=lambda: timestamp(datetime.fromtimestamp(EPOCH + world.seconds, UTC)),
            start_watch=lambda _reflector: None,
        )
        self._loaded = False

    def run(self) -> bool:
        """Observe everything, and do everything that is due; return whether something failed."""
        self.observe()
        return self.work()

    def observe(self, *plurals: str) -> None:
        """List these kinds, or all."""
        every: list[Watched] = [*self.controller.watcher.watches, *self.controller.kinds.reflectors]
        for reflector in every:
            if not plurals or reflector.resource.plural in plurals:
                try:
                    list_now(reflector)
                except ApiError as error:
                    self.errors.append(str(error))

    def work(self) -> bool:
        """Handle every key once; those of failures stay in their queue. Return whether there was one."""
        failed = False
        if not self._loaded:
            try:
                self.controller.kinds.load()
            except ApiError as error:
                self.errors.append(str(error))
                return True
            self._loaded = True
        controller = self.controller
        failed |= self._drain(controller.kinds.queue, controller.kinds.follow)
        failed |= self._drain(controller.pools.queue, controller.pools.reconcile)
        failed |= self._drain(controller.queue, controller.reconcile)
        return self._drain(controller.sweep.queue, controller.sweep.sweep) or failed

    def _drain(self, queue: WorkQueue[Any], handle: Callable[[Any], object]) -> bool:
        keys, failed = list(queue._due), False
        for key in keys:
            queue.forget(key)
        for key in keys:
            try:
                if handle(key) is not None:
                    queue.add(key)
            except (Retry, ApiError) as error:
                self.errors.append(str(error))
                queue.add(key)
                failed = True
        return failed


def _without_lists(around: Around) -> Around:
    return lambda call, send: send() if call.verb == "list" else around(call, send)


def settled(world: World) -> Process:
    """Run one process until nothing is left to do; check what always holds."""
    process = Process(world)
    world.settle(process)
    world.check()
    return process


def refusing(verb: str, plural: str, error: ApiError) -> Callable[[str, str], ApiError | None]:
    """Return the fault of an API that refuses one verb for one kind."""
    return lambda asked, of: error if (asked, of) == (verb, plural) else None


def template(world: World, value: Json, **spec: Any) -> None:  # noqa: ANN401 -- JSON
    """Replace the template of the world."""
    world.api.delete(RAW_TEMPLATES, "t0")
    world.template("t0", value, **spec)
