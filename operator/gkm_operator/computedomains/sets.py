"""Reconciles the ComputeDomains of one PodCliqueSet.

The switch of the feature has no say here: a set with the annotation is scaled, repaired and released whatever it is.
"""

from functools import partial

from gkm.api.grove import PodCliqueSet
from gkm.api.network_settings import Network
from gkm.kube.api import Api, ListSelector
from gkm.kube.errors import ApiError
from gkm.kube.events import EventBody, Regarding
from gkm.kube.resources import PODCLIQUESETS
from gkm.kube.workqueue import Retry

from gkm_operator.computedomains import events
from gkm_operator.computedomains.lifecycle import DomainWriter, run_all
from gkm_operator.computedomains.objects import Workload
from gkm_operator.computedomains.presence import Presence
from gkm_operator.computedomains.set_plan import NOTHING, Required, SetPlan, plan, unused_only
from gkm_operator.computedomains.watcher import DomainWatcher
from gkm_operator.mnnvl import dialect
from gkm_operator.mnnvl.gpu_requests import GPURequests
from gkm_operator.mnnvl.required import limit_problem, required_domains


class SetReconciler:
    """Thread-safe for different sets. Only `missing` is remembered, for a metric."""

    def __init__(self, api: Api, watcher: DomainWatcher, writer: DomainWriter, settings: Network) -> None:
        self.missing: dict[Workload, int] = {}
        """The number of domains that a set lacks; without those that lack none."""
        self._api = api
        self._watcher = watcher
        self._writer = writer
        self._settings = settings
        self._gpus = GPURequests(settings)

    def reconcile(self, workload: Workload, presence: Presence) -> None:
        """Do what one set needs.

        Raises:
            ApiError, Retry: something failed; the other domains of the set were tried.
        """
        pod_clique_set = self._watcher.pod_clique_set(workload.namespace, workload.name)
        if not presence.available:
            self._report(pod_clique_set, events.unavailable(presence.message), presence.since)
            return
        found = self._plan(pod_clique_set, workload)
        if found.release:
            # The watch of sets may lag behind another leader's, which made these domains.
            found = self._plan_live(workload)
        if presence.grove_manages and found.pod_clique_set is not None:
            body = events.grove_manages(self._settings.grove_cluster_role)
            self._report(found.pod_clique_set, body, presence.since)
            return
        self._carry_out(found, workload)

    def _carry_out(self, found: SetPlan, workload: Workload) -> None:
        pod_clique_set, regarding = found.pod_clique_set, None
        self.missing.pop(workload, None)
        if pod_clique_set is not None:
            regarding = events.of_set(pod_clique_set)
            self._report_problems(found, pod_clique_set, regarding)
        actions = [partial(self._writer.release, domain, regarding, lost=True) for domain in found.lost]
        actions += [partial(self._writer.release, domain, regarding) for domain in found.release]
        if regarding is not None and found.create:
            self.missing[workload] = len(found.create)
            actions += [partial(self._writer.create, desired, regarding) for desired in found.create]
        run_all(actions)
        self.missing.pop(workload, None)

    def _report_problems(self, found: SetPlan, pod_clique_set: PodCliqueSet, regarding: Regarding) -> None:
        for domain in found.not_ours:
            self._writer.emit(regarding, events.not_ours(domain.metadata.name), domain.metadata.uid)
        if found.create:
            classes = self._watcher.device_classes(pod_clique_set.metadata.namespace)
            if problem := limit_problem(pod_clique_set, self._gpus, classes):
                self._writer.emit(regarding, events.too_many(problem), str(pod_clique_set.metadata.generation))

    def _report(self, pod_clique_set: PodCliqueSet | None, body: EventBody, occasion: str) -> None:
        """Send an event about an enrolled set."""
        if pod_clique_set is None or pod_clique_set.metadata.terminating or not dialect.enrols(pod_clique_set):
            return
        self._writer.emit(events.of_set(pod_clique_set), body, occasion)

    def _plan(self, pod_clique_set: PodCliqueSet | None, workload: Workload) -> SetPlan:
        required = NOTHING
        if pod_clique_set is not None and not pod_clique_set.metadata.terminating:
            known = self._watcher.device_classes(workload.namespace)
            assumed = self._watcher.device_classes(workload.namespace, self._settings.gpu_device_classes)
            required = Required(
                required_domains(pod_clique_set, self._gpus, known),
                required_domains(pod_clique_set, self._gpus, assumed),
            )
        return plan(pod_clique_set, required, self._watcher.domains_of(workload), self._watcher.serves)

    def _plan_live(self, workload: Workload) -> SetPlan:
        """Return the plan for the set as the API server has it now.

        Raises:
            Retry: the set exists and cannot be decoded, so what it requires is not known.
        """
        try:
            pod_clique_set = self._read(workload)
        except ApiError as error:
            # No PodCliqueSet at all: their kind, or its version, was removed. Pods may still run.
            if not error.not_found:
                raise
            return unused_only(self._plan(None, workload))
        return self._plan(pod_clique_set, workload)

    def _read(self, workload: Workload) -> PodCliqueSet | None:
        """Return the set. A list of one name, because a missing set is then no error, and a missing kind is 404."""
        selector = ListSelector(workload.namespace, fields=f"metadata.name={workload.name}")
        for page in self._api.list_pages(PODCLIQUESETS, selector, limit=1):
            if page.unreadable:
                raise Retry(f"PodCliqueSet {workload.namespace}/{workload.name} cannot be read")
            for entry in page.entries:
                return entry.value
        return None
