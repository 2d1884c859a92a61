"""Plays the Grove operator against an Api: it does to objects what the real one was seen to do, and nothing else.

Grove's operator cannot be built from published modules, so tests with a set run this one beside GKM. It is that of main
with its own MNNVL switched off: it makes no ComputeDomain and injects no claim. A pass reads everything and writes what
differs; it is level-triggered, as the real one. What matters to GKM and is easy to miss:

- the spec, labels and annotations of a standalone PodClique are replaced from the template at every pass, except its
  replicas: an injected claim is lost, and must be injected again;
- PodCliques of a scaling group are created once; a changed template deletes all of a replica, and the next pass makes
  them anew;
- replicas of a scaling group and of a PodClique are taken from the template at creation only;
- a refused request stops the steps that come later for that set; the next pass tries again.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any

from gkm.kube.api import Api, ListSelector
from gkm.kube.errors import ApiError
from gkm.kube.resources import Resource
from support.grove import desired
from support.host.waiting import scaled

Json = dict[str, Any]
_VERSION = desired.GROVE_VERSION
SETS: Resource[Json] = Resource(_VERSION, "PodCliqueSet", "podcliquesets", namespaced=True, type=Json)
CLIQUES: Resource[Json] = Resource(_VERSION, "PodClique", "podcliques", namespaced=True, type=Json)
GROUPS: Resource[Json] = Resource(
    _VERSION, "PodCliqueScalingGroup", "podcliquescalinggroups", namespaced=True, type=Json
)
SERVICES: Resource[Json] = Resource("v1", "Service", "services", namespaced=True, type=Json)
PODS: Resource[Json] = Resource("v1", "Pod", "pods", namespaced=True, type=Json)

_EVERY_PASS_SECONDS = 0.2


@dataclass
class GroveDriver:
    """One Grove operator of a namespace ("" for all); with `pods`, PodCliques get their pods, without any gate."""

    api: Api
    namespace: str = ""
    pods: bool = False
    services: bool = True
    refusals: list[ApiError] = field(default_factory=list)
    """The errors of the last pass."""
    writes: Counter[str] = field(default_factory=Counter)
    """Requests that changed or tried to change objects, by verb and plural: "create podcliques"."""

    def __post_init__(self) -> None:
        self._stop = Event()
        self._thread: Thread | None = None
        self._suffixes = itertools.count(1)

    def sync(self) -> bool:
        """Do one pass; return whether there was nothing to do and nothing was refused."""
        before = self.writes.total()
        self.refusals = []
        sets = {pcs["metadata"]["uid"]: pcs for pcs in self.every(SETS)}
        for pcs in sets.values():
            self._sync_set(pcs)
        for group in self.every(GROUPS):
            if (owner := sets.get(_owner(group))) is not None:
                self._sync_group(owner, group)
            elif _terminating(group):
                self._release(GROUPS, group)
        for clique in self.every(CLIQUES):
            if _terminating(clique):
                self._release(CLIQUES, clique)
            elif self.pods:
                self._sync_pods(clique)
        return not self.refusals and self.writes.total() == before

    def settle(self, passes: int = 30) -> None:
        """Do passes until one has nothing to do; fail if `passes` do not suffice."""
        for _ in range(passes):
            if self.sync():
                return
        raise AssertionError(f"the driver is not done after {passes} passes: {self.refusals}")

    def start(self) -> None:
        """Do passes in a thread until `close`; it survives every refusal, as an operator does."""
        self._thread = Thread(target=self._run, name="grove driver", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread of `start`."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(scaled(10))

    def every(self, resource: Resource[Json], labels: str = "") -> list[Json]:
        """Return all objects of a kind."""
        pages = self.api.list_pages(resource, ListSelector(self.namespace, labels))
        # Lists of the real API leave both out of their items.
        header = {"apiVersion": resource.api_version, "kind": resource.kind}
        return [header | entry.value for page in pages for entry in page.entries]

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_PASS_SECONDS):
            try:
                self.sync()
            except ApiError as error:
                self.refusals.append(error)

    def _sync_set(self, pcs: Json) -> None:
        if _terminating(pcs):
            # Its children have owner references: the garbage collector does the rest.
            self._release(SETS, pcs)
            return
        if desired.SET_FINALIZER not in pcs["metadata"].get("finalizers", []):
            finalizers = [*pcs["metadata"].get("finalizers", []), desired.SET_FINALIZER]
            self._patch(SETS, pcs, {"metadata": {"finalizers": finalizers}})
        steps: list[tuple[Resource[Json], Iterable[Json]]] = [
            (CLIQUES, desired.standalone_cliques(pcs)),
            (GROUPS, desired.scaling_groups(pcs)),
        ]
        if self.services:
            steps.insert(0, (SERVICES, desired.services(pcs)))
        for resource, wanted in steps:
            before = len(self.refusals)
            self._create_delete_or_patch(resource, self._children(resource, pcs), wanted)
            if len(self.refusals) > before:
                return

    def _create_delete_or_patch(
        self, resource: Resource[Json], present: dict[str, Json], wanted: Iterable[Json]
    ) -> None:
        by_name = {one["metadata"]["name"]: one for one in wanted}
        for name in present.keys() - by_name.keys():
            self._delete(resource, present[name])
        for name, one in by_name.items():
            if name not in present:
                self._create(resource, one)
            elif patch := _replacement(present[name], one):
                self._patch(resource, present[name], patch)

    def _sync_group(self, pcs: Json, group: Json) -> None:
        if _terminating(group):
            self._release(GROUPS, group)
            return
        present = self._children(CLIQUES, group)
        wanted = {one["metadata"]["name"]: one for one in desired.group_cliques(pcs, group)}
        outdated = {
            _index(one) for name, one in present.items() if name in wanted and _hash(one) != _hash(wanted[name])
        }
        for name, one in present.items():
            if name not in wanted or _index(one) in outdated:
                self._delete(CLIQUES, one)
        for name, one in wanted.items():
            if name not in present:
                self._create(CLIQUES, one)

    def _sync_pods(self, clique: Json) -> None:
        present = sorted(self._children(PODS, clique).values(), key=_pod_index)
        outdated = [pod for pod in present if _hash(pod) != _hash(clique) and not _terminating(pod)]
        excess = [pod for pod in present if not _terminating(pod)][clique["spec"]["replicas"] :]
        for pod in excess or outdated[:1]:
            self._delete(PODS, pod)
        free = sorted(set(range(clique["spec"]["replicas"])) - {_pod_index(pod) for pod in present})
        for index in free[: max(0, clique["spec"]["replicas"] - len(present))]:
            name = f"{clique['metadata']['name']}-{next(self._suffixes):05x}"
            self._create(PODS, desired.pod(clique, name, index))

    def _children(self, resource: Resource[Json], owner: Json) -> dict[str, Json]:
        metadata = owner["metadata"]
        part_of = metadata["name"] if owner["kind"] == SETS.kind else metadata["labels"][desired.PART_OF]
        found = self.every(resource, f"{desired.PART_OF}={part_of}")
        return {one["metadata"]["name"]: one for one in found if _owner(one) == metadata["uid"]}

    def _create(self, resource: Resource[Json], value: Json) -> None:
        self._send("create", resource, lambda: self.api.create(resource, value), ignore=lambda error: error.conflict)

    def _patch(self, resource: Resource[Json], value: Json, patch: Json) -> None:
        metadata = value["metadata"]
        self._send(
            "patch", resource, lambda: self.api.merge(resource, metadata["name"], patch, metadata.get("namespace"))
        )

    def _delete(self, resource: Resource[Json], value: Json) -> None:
        if not _terminating(value):
            name, namespace = value["metadata"]["name"], value["metadata"]["namespace"]
            self._send("delete", resource, lambda: self.api.delete(resource, name, namespace))

    def _release(self, resource: Resource[Json], value: Json) -> None:
        ours = {desired.SET_FINALIZER, desired.GROUP_FINALIZER, desired.CLIQUE_FINALIZER}
        finalizers = value["metadata"].get("finalizers", [])
        if not ours.isdisjoint(finalizers):
            left = [finalizer for finalizer in finalizers if finalizer not in ours]
            self._patch(resource, value, {"metadata": {"finalizers": left}})

    def _send(
        self,
        verb: str,
        resource: Resource[Json],
        send: Callable[[], object],
        ignore: Callable[[ApiError], bool] = lambda error: error.not_found,
    ) -> None:
        self.writes[f"{verb} {resource.plural}"] += 1
        try:
            send()
        except ApiError as error:
            if not ignore(error):
                self.refusals.append(error)


def _replacement(present: Json, wanted: Json) -> Json:
    """Return the merge patch (RFC 7386) that replaces what Grove writes; {} without a difference."""
    old, new = present["metadata"], wanted["metadata"]
    metadata = {
        "labels": _difference(old.get("labels", {}), new["labels"]),
        "annotations": _difference(old.get("annotations", {}), new.get("annotations", {})),
    }
    spec = wanted["spec"]
    if "replicas" in present["spec"]:
        spec = spec | {"replicas": present["spec"]["replicas"]}
    if wanted["kind"] == SERVICES.kind:
        # The API server fills in addresses and families.
        spec = present["spec"] | spec
    return {
        name: patch
        for name, patch in (
            ("metadata", {part: patch for part, patch in metadata.items() if patch}),
            ("spec", _difference(present["spec"], spec)),
        )
        if patch
    }


def _difference(old: Json, new: Json) -> Json:
    patch: Json = dict.fromkeys(old.keys() - new.keys())
    for name, value in new.items():
        if isinstance(value, dict) and isinstance(old.get(name), dict):
            patch |= {name: inner} if (inner := _difference(old[name], value)) else {}
        elif name not in old or old[name] != value:
            patch[name] = value
    return patch


def _owner(value: Json) -> str:
    return next((one["uid"] for one in value["metadata"].get("ownerReferences", []) if one.get("controller")), "")


def _terminating(value: Json) -> bool:
    return "deletionTimestamp" in value["metadata"]


def _hash(value: Json) -> str:
    return str(value["metadata"].get("labels", {}).get(desired.HASH))


def _index(clique: Json) -> str:
    return str(clique["metadata"]["labels"].get(desired.GROUP_REPLICA))


def _pod_index(pod: Json) -> int:
    return int(pod["metadata"]["labels"][desired.POD_INDEX])
