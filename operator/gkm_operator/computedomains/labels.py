"""Reconciles the ComputeDomain that pods name by the label `gkm.io/compute-domain`.

Its owners are the root workloads of the pods, so the garbage collector removes it with the last of them. A domain of
that name which GKM did not make for a label is used as it is.
"""

from gkm.api.mnnvl_metadata import DOMAIN_LABEL
from gkm.api.network_settings import Network
from gkm.kube.api import Api

from gkm_operator.computedomains import events, objects
from gkm_operator.computedomains.grove_pods import joins_domain_of_set
from gkm_operator.computedomains.lifecycle import DomainWriter
from gkm_operator.computedomains.objects import Workload
from gkm_operator.computedomains.owners import RootOwners
from gkm_operator.computedomains.pods import DomainPod, DomainPods
from gkm_operator.computedomains.presence import Presence
from gkm_operator.computedomains.watcher import DomainWatcher

MAX_OWNERS = 256
"""Owners of one domain. With more, it lives as long as one of the first."""


class LabelReconciler:
    """Thread-safe for different labels; remembers nothing that decides."""

    def __init__(
        self, api: Api, watcher: DomainWatcher, pods: DomainPods, writer: DomainWriter, settings: Network
    ) -> None:
        self._watcher = watcher
        self._pods = pods
        self._writer = writer
        self._gpu_classes = frozenset(settings.gpu_device_classes)
        self._owners = RootOwners(api)

    def reconcile(self, workload: Workload, presence: Presence) -> None:
        """Do what one label needs.

        Raises:
            ApiError, Retry: something failed.
        """
        if not presence.available:
            return
        domain = self._watcher.domain(workload.namespace, workload.name)
        if domain is not None and not (domain.written_by_gkm and domain.metadata.label(DOMAIN_LABEL)):
            return
        pods = [pod for pod in self._pods.labelled(workload.namespace, workload.name) if self._joins(pod)]
        if domain is None:
            if owners := self._owners.of(pods, fresh=True)[:MAX_OWNERS]:
                self._writer.create(objects.of_label(workload, owners), events.of_owner(owners[0], workload.namespace))
            return
        present = domain.metadata.owner_references or ()
        if domain.metadata.terminating:
            is_lost = bool(pods and present)
            if not (is_lost and self._watcher.serves(domain)):
                regarding = events.of_owner(present[0], workload.namespace) if is_lost else None
                self._writer.release(domain, regarding, lost=True)
        elif pods:
            known = {owner.uid for owner in present}
            more = [owner for owner in self._owners.of(pods) if owner.uid not in known]
            if more := more[: max(MAX_OWNERS - len(known), 0)]:
                self._writer.add_owners(domain, more)
        elif not present:
            self._writer.release(domain, None)

    def _joins(self, pod: DomainPod) -> bool:
        """Return whether a pod needs the domain."""
        if pod.metadata.terminating or joins_domain_of_set(pod, self._watcher):
            return False
        classes = self._watcher.device_classes(pod.metadata.namespace)
        return pod.requests_gpus or any(not self._gpu_classes.isdisjoint(classes(claim)) for claim in pod.claims)
