"""Watches PodCliqueSets, ComputeDomains, ResourceClaimTemplates and pods, and index them for the controller.

The relevant pods have claims or our label, or use GPUs of a node. Must never write to the API server.
"""

from collections.abc import Iterable
from datetime import datetime

from gkm.api.computedomains import ComputeDomain
from gkm.api.grove import PodCliqueSet, SetSpec
from gkm.api.mnnvl_metadata import NODE_LABEL
from gkm.api.pod_specs import PodClaim
from gkm.kube.api import Api, Key, ObjectEntry
from gkm.kube.controller import StartedWatch
from gkm.kube.index import Index
from gkm.kube.informers import Informers
from gkm.kube.reflector import OnChange, OnRefused, Reflector, no_report
from gkm.kube.resources import CLAIM_TEMPLATES, CLAIMS, COMPUTEDOMAINS, PODCLIQUESETS, WATCHED_CLAIM_TEMPLATES
from msgspec import structs

from gkm_operator.computedomains.claims import ClaimReader, Unseen
from gkm_operator.computedomains.objects import Workload, workload_of
from gkm_operator.mnnvl.dialect import enrolls
from gkm_operator.mnnvl.gpu_requests import DeviceClasses, GPURequests
from gkm_operator.pods import PODS, WatchedPod

OVERDUE_SECONDS = 60.0


def is_overdue(pod: WatchedPod, now: datetime) -> bool:
    """Return whether a pod is still there long after its grace period, because its node is dead or its kubelet hangs.

    The deletionTimestamp of a pod is the end of its grace period.
    """
    try:
        return (now - datetime.fromisoformat(pod.metadata.deletion_timestamp or "")).total_seconds() >= OVERDUE_SECONDS
    except (ValueError, TypeError):  # missing, or without a time zone
        return False


class DomainPods:
    """Indexes the pods that concern ComputeDomains and have not ended. Thread-safe.

    The callbacks in `changed` get each change after the indexes have it; add them before the start. A pod that is not
    known in full is left out, and `on_refused` gets it.
    """

    def __init__(self, informers: Informers, gpus: GPURequests, on_refused: OnRefused = no_report) -> None:
        self.changed: list[OnChange[WatchedPod]] = []
        self.gpus = gpus
        self.watch = informers.select(PODS, self.change, wants=self.matters)
        self._on_refused = on_refused
        self._by_template: Index[Key, WatchedPod] = Index(lambda pod: pod.template_keys, _uid)
        self._by_label: Index[Key, WatchedPod] = Index(_label_keys, _uid)
        self._by_node: Index[str, WatchedPod] = Index(lambda pod: [pod.node] if pod.node else [], _uid)

    def matters(self, pod: WatchedPod) -> bool:
        """Return whether a pod has not ended, and has claims, GKM's label or GPUs of a node."""
        uses = pod.claims or pod.domain or (pod.node and self.names_gpus(pod))
        return not pod.ended and bool(uses or pod.refused)

    def change(self, old: WatchedPod | None, new: WatchedPod | None) -> None:
        """Update the indexes after a change of a pod, unless only fields that are not stored have changed."""
        if new is not None and new.refused:
            self._refuse(old, new)
            new = None
        if old is not None and old.refused:
            old = None
        if old == new:
            return
        for index in (self._by_template, self._by_label):
            index.change(old, new)
        self._by_node.change(old, new)
        for callback in self.changed:
            callback(old, new)

    def names_gpus(self, pod: WatchedPod) -> bool:
        """Return whether a pod requests GPUs by a resource such as nvidia.com/gpu."""
        return self.gpus.any_resource(pod.resources)

    def requests_gpus(self, pod: WatchedPod, classes: DeviceClasses) -> bool:
        """Return whether a pod requests GPUs, by a resource or by a claim."""
        return self.names_gpus(pod) or any(self.gpus.any_gpu_class(classes(claim)) for claim in pod.claims)

    def using(self, namespace: str, template: str) -> tuple[WatchedPod, ...]:
        """Return the living pods of a namespace that reference a ResourceClaimTemplate, in no particular order."""
        return self._by_template.get((namespace, template))

    def labeled(self, namespace: str, domain: str) -> tuple[WatchedPod, ...]:
        """Return the living pods of a namespace whose label names a ComputeDomain, in no particular order."""
        return self._by_label.get((namespace, domain))

    def labels(self) -> list[Key]:
        """Return namespace and name of each ComputeDomain that the label of a living pod names."""
        return self._by_label.keys()

    def on_node(self, node: str) -> tuple[WatchedPod, ...]:
        """Return the stored pods on a node, in no particular order."""
        return self._by_node.get(node)

    def _refuse(self, old: WatchedPod | None, new: WatchedPod) -> None:
        """Report a pod once: what is too large of it does not change."""
        if old is None or not old.refused:
            self._on_refused(PODS, ObjectEntry(*new.key, new.metadata.uid, new), new.refused)


def _label_keys(pod: WatchedPod) -> list[Key]:
    return [(pod.metadata.namespace, pod.domain)] if pod.domain else []


class WatchedSet(PodCliqueSet, frozen=True):
    """A PodCliqueSet as the controllers' watch holds it in memory.

    A set that is not enrolled has no template, because its annotations are immutable.
    """

    def __post_init__(self) -> None:
        if not enrolls(self):
            structs.force_setattr(self, "spec", SetSpec(self.spec.replicas))


SETS = PODCLIQUESETS.of(WatchedSet)


class DomainWatcher:
    """Watches PodCliqueSets, ComputeDomains and claim templates. Thread-safe.

    Subscribe to a watch before it starts. The sets are watched only where their kind is installed. Of a large set or
    domain a watch has a reduced copy (gkm.kube.memory).
    """

    def __init__(self, api: Api, on_refused: OnRefused = no_report) -> None:
        self._by_workload: Index[Workload, ComputeDomain] = Index(_workloads, _uid)
        self._by_template: Index[Key, ComputeDomain] = Index(_templates, _uid)
        self.sets = Reflector(api, SETS, on_refused=on_refused)
        self.domains = Reflector(api, COMPUTEDOMAINS, self._by_workload.change, on_refused=on_refused)
        self.domains.subscribe(self._by_template.change)
        self.templates = Reflector(api, WATCHED_CLAIM_TEMPLATES, on_refused=on_refused)

    def reflectors(self, *, sets: bool) -> tuple[StartedWatch, ...]:
        """Return the watches to start; the watch of PodCliqueSets only if `sets`."""
        return self.templates, self.domains, *((self.sets,) if sets else ())

    def domains_of(self, workload: Workload) -> tuple[ComputeDomain, ...]:
        """Return the ComputeDomains of a workload, including domains of earlier sets of the same name, in no order."""
        return self._by_workload.get(workload)

    def domains_with_template(self, namespace: str, template: str) -> tuple[ComputeDomain, ...]:
        """Return the ComputeDomains whose claim template has this name, in no particular order."""
        return self._by_template.get((namespace, template))

    def serves(self, domain: ComputeDomain) -> bool:
        """Return whether a ComputeDomain still works for pods that use it, even if it is being deleted.

        NVIDIA's controller deletes the claim template first, and the admission policy refuses that while pods use it.
        """
        template = self.templates.get(domain.template, domain.metadata.namespace)
        return domain.in_use and template is not None and template.metadata.label(NODE_LABEL) == domain.metadata.uid

    def device_classes(
        self,
        namespace: str,
        unknown: Iterable[str] = (),
        *,
        claims: ClaimReader | None = None,
        unseen: set[Unseen] | None = None,
    ) -> DeviceClasses:
        """Return a function that finds the device classes of a pod's claim.

        `unknown` are the classes of a claim that cannot be seen, such as a named claim without `claims`; it is added to
        `unseen`.
        """

        def classes(claim: PodClaim) -> Iterable[str]:
            template, name = claim.resource_claim_template_name, claim.resource_claim_name
            found: Iterable[str] | None = None
            if template:
                made_from = self.templates.get(template, namespace)
                found = None if made_from is None else made_from.device_classes()
            elif name and claims is not None:
                found = claims.device_classes(namespace, name)
            if found is None and unseen is not None:
                unseen.add((CLAIM_TEMPLATES.kind, template) if template else (CLAIMS.kind, name or ""))
            return unknown if found is None else found

        return classes


def _uid(found: WatchedPod | ComputeDomain) -> str:
    return found.metadata.uid


def _workloads(domain: ComputeDomain) -> list[Workload]:
    workload = workload_of(domain)
    return [] if workload is None else [workload]


def _templates(domain: ComputeDomain) -> list[Key]:
    return [(domain.metadata.namespace, domain.template)]
