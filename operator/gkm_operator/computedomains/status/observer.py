"""Watch pods, nodes and PodCliques, and collect the facts about each ComputeDomain.

ComputeDomains and claim templates come from the watches of the other half of the controller. Every change is passed on
as the key of a domain that it may affect. Must never write to the API server.
"""

from collections.abc import Callable, Iterable
from copy import copy
from typing import Self

from gkm.api.computedomains import CHANNEL_CLASS, ComputeDomain
from gkm.api.config import Config
from gkm.api.domain_capacity import DomainCapacity
from gkm.api.grove import API_VERSION, CliqueSpec
from gkm.api.mnnvl_metadata import NODE_LABEL, MnnvlMetadata
from gkm.api.resource_claims import ResourceClaimTemplate
from gkm.kube.api import Api, Key
from gkm.kube.controller import StartedWatch
from gkm.kube.index import Index
from gkm.kube.informers import Informers
from gkm.kube.reflector import OnRefused, Reflector, no_report
from gkm.kube.resources import Resource
from gkm.topology.nodes import Node
from msgspec import Struct, structs

from gkm_operator.computedomains.capacity import FabricNode, capacity, fabric_node
from gkm_operator.computedomains.status.readiness import ObservedDomain
from gkm_operator.computedomains.watcher import DomainPods, DomainWatcher
from gkm_operator.mnnvl.gpu_requests import GPURequests
from gkm_operator.mnnvl.injection import own_claim
from gkm_operator.nodes import NODES
from gkm_operator.pods import WatchedPod, claim_templates

_NO_SPEC = CliqueSpec()


class ClaimingClique(Struct, frozen=True):
    """A PodClique with its claim templates and number of replicas; `spec` is emptied to save memory."""

    metadata: MnnvlMetadata
    spec: CliqueSpec = _NO_SPEC
    replicas: int = 0
    """The number of pods that the clique should have; a missing number is 1, as in Grove."""
    templates: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for name, value in (
            ("replicas", 1 if self.spec.replicas is None else self.spec.replicas),
            ("templates", claim_templates(self.spec.pod_spec.claims)),
            ("spec", _NO_SPEC),
        ):
            structs.force_setattr(self, name, value)

    def outline(self, why: str) -> Self:
        """Return a copy of the PodClique with less metadata; `why` is the reason."""
        outlined = copy(self)  # not made anew from the spec, which decoding has emptied
        structs.force_setattr(outlined, "metadata", self.metadata.outline(why))
        return outlined

    @property
    def key(self) -> Key:
        """Return namespace and name of the PodClique."""
        return self.metadata.namespace, self.metadata.name

    @property
    def template_keys(self) -> list[Key]:
        """Return namespace and name of the claim templates that the clique's pods use."""
        return [(self.metadata.namespace, template) for template in self.templates]


CLAIMING_CLIQUES = Resource(API_VERSION, "PodClique", "podcliques", namespaced=True, type=ClaimingClique)


class DomainObserver:
    """Collects the facts about each ComputeDomain from watches. Thread-safe.

    `changed` is called with the key of a domain, and whether it may have its first pod: its mark must not wait.
    `capacity_changed` is called when the capacity may have changed.
    """

    def __init__(
        self,
        api: Api,
        config: Config,
        source: DomainWatcher,
        changed: Callable[[Key, bool], None],
        capacity_changed: Callable[[], None],
        *,
        informers: Informers,
        on_refused: OnRefused = no_report,
    ) -> None:
        self.host_imex = False
        """Whether the hosts run the IMEX daemons."""
        self._source = source
        self._changed = changed
        self._capacity_changed = capacity_changed
        self._by_uid: Index[str, ComputeDomain] = Index(lambda domain: [domain.metadata.uid], _key)
        self._cliques_by_template: Index[Key, ClaimingClique] = Index(
            lambda clique: clique.template_keys, lambda clique: clique.key
        )
        self.pods = DomainPods(informers, GPURequests(config.network), on_refused)
        self.pods.changed.append(self._pod_changed)
        self._nodes = informers.of(NODES)
        self._topology = config.topology
        self._fabric: dict[str, FabricNode] = {}
        self._cliques = Reflector(
            api,
            CLAIMING_CLIQUES,
            self._clique_changed,
            retain=lambda clique: bool(clique.templates) and not clique.metadata.terminating,
            on_refused=on_refused,
        )

    def follow_nodes(self) -> None:
        """Subscribe to the shared watch of nodes; a replica that does not lead keeps nothing of them."""
        self._nodes.subscribe(self._node_changed)

    def reflectors(self, *, grove: bool) -> tuple[StartedWatch, ...]:
        """Return the watches to start; `grove`: PodCliques are installed and watched as well."""
        return self.pods.watch, self._nodes, *((self._cliques,) if grove else ())

    def observe(self, key: Key) -> ObservedDomain | None:
        """Return the facts about a ComputeDomain that its status needs; None if it does not exist."""
        namespace, name = key
        domain = self._source.domains.get(name, namespace)
        if domain is None:
            return None
        pods = self.pods.using(namespace, domain.template)
        template = self._source.templates.get(domain.template, namespace)
        cliques = self._cliques_by_template.get((namespace, domain.template))
        return ObservedDomain(
            domain=domain,
            pods=pods,
            unclaimed=list(self._unclaimed(domain)),
            replicas=sum(clique.replicas for clique in cliques) if cliques else None,
            template=template,
            template_owner=self._template_owner(domain, template),
            taken=dict(self._taken(domain, {pod.node for pod in pods})),
            host_imex=self.host_imex,
        )

    def orphan(self, namespace: str, name: str) -> ResourceClaimTemplate | None:
        """Return a claim template if its ComputeDomain does not exist any more; else None."""
        template = self._source.templates.get(name, namespace)
        uid = template.metadata.label(NODE_LABEL) if template else ""
        return template if uid and not self._by_uid.get(uid) else None

    def capacity(self) -> DomainCapacity:
        """Return the numbers of whole free nodes by NVLink clique and GPU product."""
        return capacity(list(self._fabric.values()), self._is_busy)

    def domain_changed(self, old: ComputeDomain | None, new: ComputeDomain | None) -> None:
        """Update the indexes after a change of a ComputeDomain, and report the domains that it concerns."""
        self._by_uid.change(old, new)
        for domain in (old, new):
            if domain is not None:
                self._changed(_key(domain), old is None)
                if old is None or new is None:
                    # Another domain may name the same claim template.
                    self._affect_users([(domain.metadata.namespace, domain.template)], urgent=False)

    def template_changed(self, old: ResourceClaimTemplate | None, new: ResourceClaimTemplate | None) -> None:
        """Report the ComputeDomains that a change of a claim template concerns."""
        template = old or new
        if template is not None:
            key = (template.metadata.namespace, template.metadata.name)
            # NVIDIA's controller made it just now, and pods may wait for it: its mark must not wait.
            self._affect_users([key], urgent=old is None)
            for pod in self.pods.using(*key):
                self._affect_labeled(pod)
            if not template.metadata.label(NODE_LABEL):
                self._capacity_changed()

    def _taken(self, domain: ComputeDomain, nodes: Iterable[str]) -> Iterable[tuple[str, str]]:
        """Yield the nodes that another ComputeDomain holds, with its name if it is of the same namespace."""
        for name in nodes:
            node = self._fabric.get(name)
            if node is None or node.held_by in ("", domain.metadata.uid):
                continue
            holder = self._holder(node.held_by)
            if holder is None:
                yield name, f"a domain that does not exist (uid {node.held_by})"
            else:
                yield name, _visible_name(holder, domain) or "one of another namespace"

    def _template_owner(self, domain: ComputeDomain, template: ResourceClaimTemplate | None) -> str:
        """Return the domain of the namespace that a claim template was made for, "" if absent."""
        holder = self._holder(template.metadata.label(NODE_LABEL)) if template else None
        return _visible_name(holder, domain) if holder else ""

    def _holder(self, uid: str) -> ComputeDomain | None:
        return next(iter(self._by_uid.get(uid)), None)

    def _unclaimed(self, domain: ComputeDomain) -> Iterable[WatchedPod]:
        """Yield the pods with the label that would get the claim if they were created again.

        A claim of the user that cannot be seen is treated as a channel: a false alarm would never end.
        """
        namespace, name = _key(domain)
        classes = self._source.device_classes(namespace, unknown=(CHANNEL_CLASS,))
        for pod in self.pods.labeled(namespace, name):
            uses = domain.template in pod.templates
            if self.pods.names_gpus(pod) and not uses and not own_claim(pod.claims, domain.template, classes):
                yield pod

    def _is_busy(self, node: str) -> bool:
        """Return whether a pod on a node requests GPUs; unknown device classes are taken for GPUs."""
        for pod in self.pods.on_node(node):
            classes = self._source.device_classes(pod.metadata.namespace, unknown=self.pods.gpus.device_classes)
            if self.pods.requests_gpus(pod, classes):
                return True
        return False

    def _affect_users(self, templates: Iterable[Key], *, urgent: bool) -> None:
        """Pass on the domains that have one of these claim templates, or the template itself: it may be an orphan."""
        for template in templates:
            domains = self._source.domains_with_template(*template)
            for key in {_key(domain) for domain in domains} or {template}:
                self._changed(key, urgent)

    def _affect_labeled(self, pod: WatchedPod) -> None:
        """Pass on the domain that the label of a pod names."""
        if pod.domain:
            self._changed((pod.metadata.namespace, pod.domain), False)  # noqa: FBT003 -- marks count claims only

    def _pod_changed(self, old: WatchedPod | None, new: WatchedPod | None) -> None:
        for pod in (old, new):
            if pod is None:
                continue
            self._affect_users(pod.template_keys, urgent=old is None)
            self._affect_labeled(pod)
            if pod.node:
                self._capacity_changed()

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        # kubelets update the status of every Node all the time: most updates change no field that is read.
        if old == new or (node := new or old) is None:
            return
        before, after = self._fabric.get(node.name), None if new is None else fabric_node(new, self._topology)
        if before == after:
            return
        if after is None:
            del self._fabric[node.name]
        else:
            self._fabric[node.name] = after
        self._capacity_changed()
        if before is None or after is None or before.held_by != after.held_by:
            for pod in self.pods.on_node(node.name):
                self._affect_users(pod.template_keys, urgent=False)

    def _clique_changed(self, old: ClaimingClique | None, new: ClaimingClique | None) -> None:
        self._cliques_by_template.change(old, new)
        for clique in (old, new):
            if clique is not None:
                self._affect_users(clique.template_keys, urgent=False)


def _key(domain: ComputeDomain) -> Key:
    return domain.metadata.namespace, domain.metadata.name


def _visible_name(holder: ComputeDomain, domain: ComputeDomain) -> str:
    """Return the name of a domain in messages about another one, "" if its namespace, and so its tenant, is another."""
    return holder.metadata.name if holder.metadata.namespace == domain.metadata.namespace else ""
