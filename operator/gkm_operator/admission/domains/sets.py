"""Decide about PodCliqueSets: add the default annotation that enrolls them, refuse invalid ones, and warn.

gkm_operator.mnnvl has the rules. The needs of a set are compared with the free nodes of the cluster: each pod of a
domain takes a whole node, because a node has one IMEX channel. The result is a warning, and must never become a
refusal: free nodes change at any moment.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from gkm.api.domain_capacity import DomainCapacity, NodePool
from gkm.api.grove import CliqueTemplate, PodCliqueSet
from gkm.api.mnnvl_metadata import AUTO_MNNVL
from gkm.api.pod_specs import PodSpec

from gkm_operator.admission.domains.cluster_view import ReviewView, TooManyClaims, ViewUnavailable
from gkm_operator.admission.domains.patches import add_entries
from gkm_operator.admission.domains.requests import DomainRequest, ReviewedSet
from gkm_operator.admission.review import ADMITTED, ReviewResponse, refused, warned
from gkm_operator.mnnvl import dialect
from gkm_operator.mnnvl.gpu_requests import DeviceClasses, GPURequests
from gkm_operator.mnnvl.injection import inject
from gkm_operator.mnnvl.required import domain_name, limit_problem

_SHOWN_PRODUCTS = 4
_PARTIAL = "mig-"
"""Prefix of the resource names of NVIDIA's device plugin for parts of GPUs (MIG)."""
_WHOLE = re.compile(r"[0-9]{1,6}", re.ASCII)


def set_defaults(view: ReviewView, request: DomainRequest[ReviewedSet], *, gpus: GPURequests) -> ReviewResponse:
    """Add `grove.io/auto-mnnvl: enabled` to a new set that requests GPUs and has no annotation of either dialect.

    Raises:
        ViewUnavailable: it cannot be decided now.
    """
    found = request.object
    # Where Grove itself manages domains, its own webhook enrolls sets.
    if found.metadata.terminating or view.cluster.grove_manages_domains:
        return ADMITTED
    classes = view.device_classes(request.namespace)
    value = dialect.default_annotation(found, gpus, classes, operation=request.operation)
    if value is None:
        return ADMITTED
    view.cluster.require_manager()
    entries = add_entries("/metadata/annotations", {AUTO_MNNVL: value}, exists=found.metadata.has_annotations)
    return ReviewResponse(allowed=True, patch=tuple(entries))


def validate_set(view: ReviewView, request: DomainRequest[ReviewedSet], *, gpus: GPURequests) -> ReviewResponse:
    """Refuse a PodCliqueSet with invalid or changed annotations or too many domains; warn about other problems.

    Raises:
        ViewUnavailable: a new set names too many claims, or Grove's own switch decides and is not known yet.
    """
    new, old = request.object, request.old
    if new.metadata.terminating:
        return ADMITTED
    enabled = gpus.settings.auto_mnnvl_enabled or bool(view.cluster.grove_manages_domains)
    if old is None:
        problems = list(dialect.creation_problems(new, enabled=enabled))
    else:
        problems = list(dialect.update_problems(old, new, enabled=enabled))
    if problems:
        if not enabled:
            view.cluster.require_manager()
        return refused(*problems)
    if not dialect.enrolls(new):
        decided = new.metadata.annotation(AUTO_MNNVL) is not None or dialect.names_groups(new)
        is_new = enabled and old is None and not decided
        return warned(*dialect.unread_sharing(new)) if is_new else ADMITTED
    try:
        return _compare(new, old, gpus, view.device_classes(request.namespace), view.cluster.capacity)
    except ViewUnavailable as error:
        if old is None and isinstance(error, TooManyClaims):
            raise  # its cliques would be refused later, for the same reason
        return warned(f"GKM did not check what the ComputeDomains need: {error}")


def _compare(
    new: PodCliqueSet,
    old: PodCliqueSet | None,
    gpus: GPURequests,
    classes: DeviceClasses,
    capacity: DomainCapacity | None,
) -> ReviewResponse:
    problem = limit_problem(new, gpus, classes)
    if problem and not (old is not None and limit_problem(old, gpus, classes)):
        return refused(problem)
    found = [*dialect.warnings(new, gpus, classes), *_without_claim(new, gpus, classes)]
    if capacity is not None:
        before = needs(old, gpus, classes) if old is not None else []
        one_clique = gpus.settings.placement == "required"
        found += warnings(needs(new, gpus, classes), before, capacity, one_clique=one_clique)
    return warned(*found)


def _without_claim(new: PodCliqueSet, gpus: GPURequests, classes: DeviceClasses) -> Iterator[str]:
    """Yield warnings about cliques whose pods get no claim because of their own claims."""
    shares = gpus.sharing(new, classes)
    for clique, scaling_group in new.memberships():
        group = dialect.group_of(new, clique, scaling_group)
        if group is None:
            continue
        template = domain_name(new.metadata.name, 0, group)
        everywhere = shares(clique, scaling_group)
        if skipped := inject(clique.spec.pod_spec, template, "", gpus, classes, everywhere=everywhere).skipped:
            yield f"pods of clique {clique.name[:80]!r} join no ComputeDomain of GKM: {skipped}"


@dataclass(frozen=True, slots=True)
class Need:
    """The needs of the domains of one group: `nodes` whole nodes in one clique, for each of `domains` domains.

    `gpus` has the GPUs of one pod of each clique template; 0 if resources do not show it.
    """

    group: str
    domains: int
    nodes: int
    gpus: Mapping[str, int]


def needs(pod_clique_set: PodCliqueSet, gpus: GPURequests, classes: DeviceClasses) -> list[Need]:
    """Return the nodes and domains that each group of a PodCliqueSet needs, sorted by group."""
    members: dict[str, list[tuple[CliqueTemplate, int]]] = {}
    with_gpus = gpus.cliques(pod_clique_set, classes)
    for clique, scaling_group in pod_clique_set.memberships():
        group = dialect.group_of(pod_clique_set, clique, scaling_group)
        if group is not None and clique.name in with_gpus:
            copies = 1 if scaling_group is None or scaling_group.replicas is None else scaling_group.replicas
            members.setdefault(group, []).append((clique, clique.replicas * copies))
    return [
        Need(
            group,
            pod_clique_set.replicas,
            sum(pods for _, pods in cliques),
            {clique.name: _gpus(clique.spec.pod_spec, gpus) for clique, _ in cliques},
        )
        for group, cliques in sorted(members.items())
    ]


def warnings(
    wanted: Iterable[Need], before: Iterable[Need], capacity: DomainCapacity, *, one_clique: bool
) -> Iterator[str]:
    """Yield warnings about obstacles that may prevent a PodCliqueSet from getting its ComputeDomains.

    `before` are the needs of the same set before an update: their nodes are taken already. `one_clique` means that an
    affinity holds the pods of a domain in one clique.
    """
    had = {need.group: need for need in before}
    for need in wanted:
        old = had.get(need.group)
        if need == old:
            continue
        new_domains = need.domains - (old.domains if old else 0)
        if new_domains > 0:
            yield from _too_few(need, new_domains, capacity)
            if need.nodes > 1:
                yield from _mixed(need, capacity, one_clique=one_clique)
        yield from _shared_nodes(need, capacity)


def _too_few(need: Need, domains: int, capacity: DomainCapacity) -> Iterator[str]:
    what = f"{_name(need)} needs {need.nodes} whole nodes in one clique"
    largest = max(capacity.cliques, key=lambda clique: clique.free, default=None)
    if largest is None:
        yield f"{what}; no node has an NVLink clique"
    elif largest.free < need.nodes:
        yield f"{what}; the largest free clique has {largest.free} (clique {largest.name} with {largest.nodes} nodes)"
    elif (enough := sum(clique.free // need.nodes for clique in capacity.cliques)) < domains:
        yield f"{what}; the free nodes are enough for {enough} of {domains} replicas"


def _mixed(need: Need, capacity: DomainCapacity, *, one_clique: bool) -> Iterator[str]:
    # With the affinity, a domain spans two products only in a clique that has no pool large enough.
    large = [clique.pools for clique in capacity.cliques if clique.free >= need.nodes]
    pools = [pool for clique in capacity.cliques for pool in clique.pools]
    if one_clique:
        spans = bool(large) and all(max(pool.free for pool in each) < need.nodes for each in large)
        pools = [pool for each in large for pool in each]
    else:
        spans = True
        if bare := sum(pool.free for pool in capacity.without_fabric):
            yield f"{_name(need)} may get nodes without an NVLink fabric: {bare} of them are free; select nodes"
    products = sorted({pool.product for pool in pools if pool.free and pool.product})
    if spans and len(products) > 1:
        shown = ", ".join(products[:_SHOWN_PRODUCTS])
        yield f"{_name(need)} may span {len(products)} GPU products ({shown}); select nodes of one"


def _shared_nodes(need: Need, capacity: DomainCapacity) -> Iterator[str]:
    sizes: list[NodePool] = [pool for clique in capacity.cliques for pool in clique.pools if pool.gpus_per_node]
    whole = min((pool.gpus_per_node for pool in sizes), default=0)
    for clique, gpus in need.gpus.items():
        if 0 < gpus < whole:
            yield (
                f"a pod of clique {clique[:80]!r} requests {gpus} of the {whole} GPUs of a node, and takes the node: "
                "a node has one IMEX channel"
            )


def _name(need: Need) -> str:
    return f"group {need.group!r} of a replica" if need.group else "a replica"


def _gpus(spec: PodSpec, gpus: GPURequests) -> int:
    """Return the whole GPUs of the containers of a pod; 0 if a part of a GPU, or a claim, may add some."""
    total = 0
    for container in spec.containers or ():
        resources = container.resources
        for name, quantity in {**(resources.requests or {}), **(resources.limits or {})}.items() if resources else ():
            if any(fnmatchcase(name, glob) for glob in gpus.settings.gpu_resources):
                if name.rpartition("/")[2].startswith(_PARTIAL) or not _WHOLE.fullmatch(str(quantity)):
                    return 0
                total += int(quantity)
    return 0 if spec.claims else total
