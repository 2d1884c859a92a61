"""Reconciles the ComputeDomain that pods name by the label `gkm.io/compute-domain`.

Its owners are the root workloads of the pods, so the garbage collector removes it with the last of them: their
controllers, followed upward as far as GKM may read. A Job is a root even if a CronJob made it: each run of a CronJob is
a workload that ends, and its domain ends with it.

A domain that no pod needs for some minutes is released earlier: a Deployment whose label changes may live for years. A
domain of that name which GKM did not make for a label is used as it is. While the switch of the feature is off, no
domain is created, because admission adds no claim for a domain that does not exist: existing ones stay until they are
unused.
"""

import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from gkm.api.computedomains import ComputeDomain
from gkm.api.grove import PodCliqueSet
from gkm.api.mnnvl_metadata import DOMAIN_LABEL, PART_OF, REPLICA_INDEX, MnnvlMetadata, Owner
from gkm.api.network_settings import Network
from gkm.hoststate.lru import LRUCache
from gkm.hoststate.pacing import Clock
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.live_objects import live_object
from gkm.kube.resources import PODCLIQUESETS, Resource
from msgspec import Struct, structs

from gkm_operator.computedomains import events, objects
from gkm_operator.computedomains.claims import UNSEEN_SECONDS, ClaimReader, Unseen, any_claim
from gkm_operator.computedomains.lifecycle.writer import DomainWriter
from gkm_operator.computedomains.objects import Workload, WorkloadKind, workload_of
from gkm_operator.computedomains.pacing import CreationPacing, WritePacing
from gkm_operator.computedomains.presence import Presence
from gkm_operator.computedomains.watcher import DomainPods, DomainWatcher
from gkm_operator.mnnvl.injection import own_claim
from gkm_operator.mnnvl.required import names_domain, replica_index
from gkm_operator.pods import PodMetadata, WatchedPod

MAX_DEPTH = 8
"""Limit of controllers above a pod. A worker of a LeaderWorkerSet has four: StatefulSet, Pod, StatefulSet,
LeaderWorkerSet."""
MAX_CACHED = 8192

_PLURALS = {
    ("", "Pod"): "pods",
    ("apps", "Deployment"): "deployments",
    ("apps", "ReplicaSet"): "replicasets",
    ("apps", "StatefulSet"): "statefulsets",
    ("batch", "Job"): "jobs",
    ("jobset.x-k8s.io", "JobSet"): "jobsets",
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): "leaderworkersets",
}
"""The owner kinds that deploy/components/domains lets the controllers read."""
_VERSION = re.compile(r"v[0-9][a-z0-9]{0,30}", re.ASCII)


class Owned(Struct, frozen=True):
    """Any object, reduced to its owner references."""

    metadata: MnnvlMetadata


class _OwnerAbsent(Exception):
    """A controller does not exist any more, or is going: the garbage collector deletes its dependents."""


@dataclass(frozen=True, slots=True)
class _Controller:
    """The controller of an object: None above a root. `readable` is false where GKM may not read the object."""

    owner: Owner | None = None
    readable: bool = True


_UNREADABLE = _Controller(readable=False)


_Reference = tuple[str, Owner]
"""A namespace and the whole reference: users write its parts, so a uid alone may belong to another object."""


class RootOwners:
    """Finds the top-level owners of pods and caches the owners of objects. Thread-safe."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._cache: LRUCache[_Reference, _Controller] = LRUCache(MAX_CACHED)

    def of(self, pods: Iterable[WatchedPod], *, fresh: bool = False) -> list[Owner]:
        """Return the top-level owners of pods, each once, in a stable order: MAX_OWNERS at most, of the first by name.

        A pod whose controller is being deleted has no owner here. `fresh` reads the controllers again.

        Raises:
            ApiError: a controller could not be read, for a passing reason.
        """
        cache: LRUCache[_Reference, _Controller] = LRUCache(MAX_CACHED) if fresh else self._cache
        found: dict[str, Owner] = {}
        for pod in sorted(pods, key=lambda pod: pod.metadata.name):
            if len(found) == MAX_OWNERS:
                break
            with suppress(_OwnerAbsent):
                root = self._root(pod.metadata, cache)
                found[root.uid] = root
        return sorted(found.values(), key=lambda owner: (owner.kind, owner.name, owner.uid))

    def _root(self, pod: PodMetadata, cache: LRUCache[_Reference, _Controller]) -> Owner:
        root, above = Owner("v1", "Pod", pod.name, pod.uid), pod.controller
        for _ in range(MAX_DEPTH):
            if above is None:
                break
            controller = cache.get((pod.namespace, above))
            if controller is None:
                controller = self._controller_of(above, pod.namespace)
                cache.put((pod.namespace, above), controller)
            if not controller.readable:
                break
            root, above = above, controller.owner
        # Several pods may name one object with and without `controller`: it is one owner of the domain.
        return structs.replace(root, controller=False)

    def _controller_of(self, owner: Owner, namespace: str) -> _Controller:
        """Return the controller of an object.

        Raises:
            _OwnerAbsent: the object does not exist, or is being deleted.
        """
        group, _, version = owner.api_version.rpartition("/")
        plural = _PLURALS.get((group, owner.kind))
        # Users write owner references, and the version becomes a part of a path.
        if plural is None or not _VERSION.fullmatch(version):
            return _UNREADABLE
        resource = Resource(owner.api_version, owner.kind, plural, namespaced=True, type=Owned)
        try:
            metadata = self._api.get(resource, owner.name, namespace).metadata
        except ApiError as error:
            if error.reason == "NotFound":
                raise _OwnerAbsent from error
            if error.forbidden or error.not_found:  # the kind is not served
                return _UNREADABLE
            raise
        if metadata.uid != owner.uid or metadata.terminating:
            raise _OwnerAbsent
        return _Controller(metadata.controller)


FindSet = Callable[[str, str], PodCliqueSet | None]
"""Returns a PodCliqueSet by name and namespace, None if absent."""


def joins_domain_of_set(pod: WatchedPod, watcher: DomainWatcher, sets: FindSet | None = None) -> bool:
    """Return whether the label of a pod names a domain that a PodCliqueSet's reconcile creates.

    The domain may be absent for a moment. A set that is not shown is no reason to wait: if its domain exists, the label
    takes no pods from it. `sets` finds a set with its template; without, a large set is a set that is not shown.
    """
    metadata = pod.metadata
    domain = watcher.domains.get(pod.domain, metadata.namespace)
    if domain is not None:
        workload = workload_of(domain)
        return workload is not None and workload.kind is WorkloadKind.SET
    owner = (sets or watcher.sets.get)(metadata.label(PART_OF), metadata.namespace)
    replica = replica_index(metadata.label(REPLICA_INDEX))
    return owner is not None and replica is not None and names_domain(owner, replica, pod.domain)


MAX_OWNERS = 256
"""Limit of owners of one domain; with more owners it lives as long as the first ones."""

_SWITCHED_OFF = "network.autoMNNVLEnabled is off; remove the label and create the pods again, or have it switched on"

UNUSED_SECONDS = 600.0
"""Seconds without a pod that needs a domain before it is released; the retries of a Job are six minutes apart at
most."""


class LabelReconciler:
    """Reconciles the ComputeDomain of one label value. Thread-safe for different labels."""

    def __init__(
        self,
        api: Api,
        watcher: DomainWatcher,
        pods: DomainPods,
        writer: DomainWriter,
        settings: Network,
        *,
        claims: ClaimReader,
        creations: CreationPacing,
        pacing: WritePacing,
        clock: Clock = time.monotonic,
    ) -> None:
        self._api = api
        self._watcher = watcher
        self._pods = pods
        self._writer = writer
        self._claims = claims
        self._creations = creations
        self._pacing = pacing
        self._clock = clock
        self._unused_since: dict[Workload, float] = {}
        self._enabled = settings.auto_mnnvl_enabled
        self._owners = RootOwners(api)

    def reconcile(self, workload: Workload, presence: Presence) -> float | None:
        """Reconcile the domain of a label value; return the seconds until the next pass, None if no work is left.

        Raises:
            ApiError, Retry: a request failed.
        """
        if not presence.available:
            return None
        domain = self._watcher.domains.get(workload.name, workload.namespace)
        if domain is not None and not (domain.written_by_gkm and domain.metadata.label(DOMAIN_LABEL)):
            return None
        domain = domain and self._writer.whole(domain)
        unseen = set[Unseen]()
        pods = self._joining(workload, unseen)
        wait = self._act(workload, domain, pods)
        return min(wait or UNSEEN_SECONDS, UNSEEN_SECONDS) if any_claim(unseen) else wait

    def _act(self, workload: Workload, domain: ComputeDomain | None, pods: Sequence[WatchedPod]) -> float | None:
        """Do what the label needs for the pods that join its domain; return as `reconcile`."""
        if domain is None or domain.metadata.terminating or domain.in_use or pods:
            self._unused_since.pop(workload, None)
        if domain is None:
            return self._create(workload, pods)
        present = domain.metadata.owner_references or ()
        if domain.metadata.terminating:
            is_lost = bool(pods and present)
            if not (is_lost and self._watcher.serves(domain)):
                regarding = events.of_owner(present[0], workload.namespace) if is_lost else None
                self._writer.release(domain, regarding, lost=self._enabled)
        elif pods:
            known = {owner.uid for owner in present}
            more = [owner for owner in self._owners.of(pods) if owner.uid not in known]
            return self._add_owners(domain, more[: max(MAX_OWNERS - len(known), 0)])
        elif not present:
            self._writer.release(domain, None)
        elif not domain.in_use:
            return self._release_unused(workload, domain, present[0])
        return None

    def _create(self, workload: Workload, pods: Sequence[WatchedPod]) -> float | None:
        if not self._enabled:
            # Those that have the claim wait for it: the switch went off after their creation.
            pods = [pod for pod in pods if workload.name in pod.templates]
        owners = self._owners.of(pods, fresh=True)
        if not owners:
            return None
        desired, regarding = objects.of_label(workload, owners), events.of_owner(owners[0], workload.namespace)
        if not self._enabled:
            self._writer.emit(regarding, events.not_created(desired.purpose, _SWITCHED_OFF), workload.name)
        elif (wait := self._creations.seconds(workload.namespace, workload, 1)) > 0:
            return wait
        else:
            self._writer.create(desired, regarding)
        return None

    def _release_unused(self, workload: Workload, domain: ComputeDomain, owner: Owner) -> float | None:
        """Release a domain whose owners live and have no pods that need it, when that has lasted; else return when."""
        now = self._clock()
        if (wait := self._unused_since.setdefault(workload, now) + UNUSED_SECONDS - now) > 0:
            return wait
        self._writer.release(domain, events.of_owner(owner, workload.namespace))
        self._unused_since.pop(workload, None)
        return None

    def _add_owners(self, domain: ComputeDomain, more: Sequence[Owner]) -> float | None:
        """Add owners, all of one moment at once: each bare pod is one, and a write costs NVIDIA's controller time."""
        key = domain.metadata.namespace, domain.metadata.name
        if not more:
            return None
        if (wait := self._pacing.seconds(key, figures_only=False)) > 0:
            return wait
        self._writer.add_owners(domain, more)
        self._pacing.wrote(key)
        return None

    def _joining(self, workload: Workload, unseen: set[Unseen]) -> list[WatchedPod]:
        """Return the pods that need the domain.

        The domains of Grove's pods belong to their PodCliqueSet, and a pod with its own channel joins no domain.
        """
        classes = self._watcher.device_classes(workload.namespace, claims=self._claims, unseen=unseen)
        sets = cache(self._whole_set)

        def joins(pod: WatchedPod) -> bool:
            if pod.metadata.terminating or joins_domain_of_set(pod, self._watcher, sets):
                return False
            if own_claim(pod.claims, workload.name, classes):
                return False
            return self._pods.requests_gpus(pod, classes)

        return [pod for pod in self._pods.labeled(workload.namespace, workload.name) if joins(pod)]

    def _whole_set(self, name: str, namespace: str) -> PodCliqueSet | None:
        """Return a set with its template, which the watch does not hold of a large one.

        Raises:
            ApiError, Retry: the API server did not answer.
        """
        found = self._watcher.sets.get(name, namespace)
        return live_object(self._api, PODCLIQUESETS, namespace, name) if found and found.metadata.oversized else found
