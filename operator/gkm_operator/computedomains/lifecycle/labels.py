"""Reconciles the ComputeDomain that pods name by the label `gkm.io/compute-domain`.

Its owners are the root workloads of the pods, so the garbage collector removes it with the last of them. One that no
pod needs for some minutes is released earlier: a Deployment whose label changes may live for years. A domain of that
name which GKM did not make for a label is used as it is. While the switch of the feature is off, no domain is created,
because admission adds no claim for one that does not exist: existing ones stay until they are unused.
"""

import time
from collections.abc import Sequence
from functools import cache

from gkm.api.computedomains import ComputeDomain
from gkm.api.grove import PodCliqueSet
from gkm.api.mnnvl_metadata import DOMAIN_LABEL, Owner
from gkm.api.network_settings import Network
from gkm.hoststate.pacing import Clock
from gkm.kube.api import Api
from gkm.kube.live_objects import live_object
from gkm.kube.resources import PODCLIQUESETS

from gkm_operator.computedomains import events, objects
from gkm_operator.computedomains.claims import UNSEEN_SECONDS, ClaimReader, Unseen, any_claim
from gkm_operator.computedomains.lifecycle.creation_pacing import CreationPacing
from gkm_operator.computedomains.lifecycle.grove_pods import joins_domain_of_set
from gkm_operator.computedomains.lifecycle.owners import RootOwners
from gkm_operator.computedomains.lifecycle.writer import DomainWriter
from gkm_operator.computedomains.objects import Workload
from gkm_operator.computedomains.pods import DomainPods
from gkm_operator.computedomains.presence import Presence
from gkm_operator.computedomains.watcher import DomainWatcher
from gkm_operator.computedomains.write_pacing import WritePacing
from gkm_operator.mnnvl.injection import own_claim
from gkm_operator.pods import WatchedPod

MAX_OWNERS = 256
"""Owners of one domain. With more, it lives as long as one of the first."""

_SWITCHED_OFF = "network.autoMNNVLEnabled is off; remove the label and create the pods again, or have it switched on"

UNUSED_SECONDS = 600.0
"""How long no pod needs a domain before it is released; the retries of a Job are at most six minutes apart."""


class LabelReconciler:
    """Thread-safe for different labels; remembers only since when no pod needs a domain."""

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
        """Do what one label needs; return the seconds until the rest may be done, None without a rest.

        Raises:
            ApiError, Retry: something failed.
        """
        if not presence.available:
            return None
        domain = self._watcher.domain(workload.namespace, workload.name)
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
        owners = self._owners.of(pods, fresh=True)[:MAX_OWNERS]
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
        """Add owners, those of a moment at once: each bare pod is one, and a write costs NVIDIA's controller time."""
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

        The domains of Grove's pods belong to their PodCliqueSet, and a pod with a channel of its own joins none.
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

    def _whole_set(self, namespace: str, name: str) -> PodCliqueSet | None:
        """Return a set with its template, which the watch does not hold of a large one.

        Raises:
            ApiError, Retry: the API server did not answer.
        """
        found = self._watcher.pod_clique_set(namespace, name)
        return live_object(self._api, PODCLIQUESETS, namespace, name) if found and found.metadata.oversized else found
