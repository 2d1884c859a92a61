"""From the objects of a cluster to the parts of its status. Pure; what could not be read never comes here."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from gkm.api.caches import Cache, condition_of, is_held_back, kind_of
from gkm.api.computedomains import ComputeDomain
from gkm.api.domain_readiness import ReadyReason, parse_readiness
from gkm.api.installation import AGENT
from gkm.api.meta import FALSE, TRUE
from gkm.api.mnnvl_metadata import MNNVL_READY
from gkm.api.nodes import CacheNode
from gkm.api.runs import Run
from gkm.api.topology_settings import Topology
from gkm.topology.labels import MalformedLabel, reader
from gkm.topology.locations import DomainKey

from gkm_cli.cache.list_caches import cause_of
from gkm_cli.doctor.findings import Severity
from gkm_cli.doctor.installation.caches import WITHOUT_NODE
from gkm_cli.doctor.installation.objects import AMD_GPUS, NVIDIA_GPUS, InstalledNode, InstalledPod, WaitingPod
from gkm_cli.doctor.installation.waiting import groups
from gkm_cli.doctor.runner import Result
from gkm_cli.status.parts import (
    CACHE_STATES,
    FAULTY,
    CacheKind,
    Caches,
    CacheState,
    CheckFindings,
    FabricDomain,
    FabricDomains,
    Nodes,
    Problems,
    RunState,
    WaitingPods,
    WaitingVolume,
    WorkloadDomain,
)

_PULLING = frozenset({"Downloading", "Extracting"})
_HEALTHY, _IMPAIRED = frozenset({"healthy"}), frozenset({"degraded", "unhealthy"})


def nodes(found: Iterable[InstalledNode], pods: Iterable[InstalledPod]) -> Nodes:
    """Return the numbers of nodes, with the agents that run on them."""
    listed = list(found)
    agents = [pod for pod in pods if pod.program == AGENT]
    ready = {pod.spec.node_name for pod in agents if pod.is_ready}
    with_gpus = [node.metadata.name for node in listed if _has_gpus(node)]
    unserved = sorted(set(with_gpus) - ready)
    return Nodes(
        total=len(listed),
        ready=sum(node.is_true("Ready") for node in listed),
        with_gpus=len(with_gpus),
        served=len(with_gpus) - len(unserved),
        agents=len(agents),
        ready_agents=sum(pod.is_ready for pod in agents),
        unserved=tuple(unserved),
    )


def _has_gpus(node: InstalledNode) -> bool:
    return node.has(NVIDIA_GPUS) or node.has(AMD_GPUS)


def caches(found: Iterable[Cache], reports: Iterable[CacheNode]) -> Caches:
    """Return the caches by state; the reports of nodes state which nodes pull."""
    listed = list(found)
    pulling = _pulling(reports)
    states = [_cache(cache, pulling[cache.metadata.namespace, cache.metadata.name]) for cache in listed]
    ordered = sorted(states, key=lambda one: (one.state not in FAULTY, one.state == "ready", one.namespace, one.name))
    kinds = groupby(sorted(listed, key=kind_of), key=kind_of)
    by_state = Counter((one.kind, one.state) for one in states)
    return Caches(tuple(_kind(kind, list(each), by_state) for kind, each in kinds), tuple(ordered))


def _pulling(reports: Iterable[CacheNode]) -> Counter[tuple[str, str]]:
    return Counter(
        (report.metadata.namespace, name)
        for report in reports
        for name, cache in report.status.caches.items()
        if cache.state in _PULLING
    )


def _kind(kind: str, found: Sequence[Cache], by_state: Mapping[tuple[str, str], int]) -> CacheKind:
    generations = [cache for cache in found if cache.spec.family]
    return CacheKind(
        kind=kind,
        total=len(found),
        states={state: by_state.get((kind, state), 0) for state in CACHE_STATES},
        families=len({(cache.metadata.namespace, cache.spec.family) for cache in generations}),
        generations=len(generations),
        pinned=sum(bool(cache.spec.pinned) for cache in found),
        held_back=sum(is_held_back(cache) for cache in found),
    )


def _cache(cache: Cache, pulling: int) -> CacheState:
    status = cache.status
    pulling = min(pulling, max(0, status.total_nodes - status.ready_nodes))
    done = status.ready_nodes + status.failed_nodes + status.incompatible_nodes + pulling
    cause = cause_of(cache)
    return CacheState(
        kind=kind_of(cache),
        namespace=cache.metadata.namespace,
        name=cache.metadata.name,
        family=cache.spec.family,
        generation=cache.spec.generation or 0,
        state=_state(cache, pulling),
        ready_nodes=status.ready_nodes,
        pulling_nodes=pulling,
        waiting_nodes=max(0, status.total_nodes - done),
        failed_nodes=status.failed_nodes,
        incompatible_nodes=status.incompatible_nodes,
        cause=cause.reason if cause else "",
        message=cause.message if cause else "",
    )


def _state(cache: Cache, pulling: int) -> str:
    """Return the state of a cache: the first that applies.

    A status about an earlier image of the spec is ignored.
    """
    status = cache.status
    verified, ready = condition_of(cache, "Verified"), condition_of(cache, "Ready")
    states = {
        "deleting": cache.metadata.deletion_timestamp is not None,
        "waiting": verified is None or ready is None,
        "refused": verified is not None and verified.status == FALSE,
        "fits no node": ready is not None and ready.reason in WITHOUT_NODE,
        "failed": status.failed_nodes > 0,
        "ready": ready is not None and ready.status == TRUE,
        "pulling": pulling > 0,
    }
    return next((state for state, applies in states.items() if applies), "waiting")


def waiting_pods(found: Iterable[WaitingPod]) -> WaitingPods:
    """Return the pods with a volume of GKM that wait for it."""
    volumes = tuple(
        WaitingVolume(group.namespace, group.cache, len(group.pods), group.pods[0].metadata.name, group.why, group.next)
        for group in groups(found)
    )
    return WaitingPods(sum(volume.pods for volume in volumes), volumes)


def fabric_domains(found: Iterable[InstalledNode], settings: Topology) -> FabricDomains:
    """Return the fabric domains that the labels of nodes name, with the health that they state."""
    read = reader(settings)
    health: dict[DomainKey, Counter[str]] = defaultdict(Counter)
    outside, invalid = 0, []
    for node in found:
        try:
            claims = read(node.metadata.labels)
        except MalformedLabel:
            invalid.append(node.metadata.name)
            continue
        if claims.domain:
            health[DomainKey.of(claims.region, claims.cluster, claims.domain)][claims.health] += 1
        else:
            outside += _has_gpus(node)
    domains = [_domain(key, counts) for key, counts in sorted(health.items())]
    return FabricDomains(tuple(sorted(domains, key=lambda one: not one.impaired)), outside, tuple(sorted(invalid)))


def _domain(key: DomainKey, health: Counter[str]) -> FabricDomain:
    healthy = sum(health[word] for word in _HEALTHY)
    impaired = sum(health[word] for word in _IMPAIRED)
    return FabricDomain(str(key), health.total(), healthy, impaired, health.total() - healthy - impaired)


def workload_domains(found: Iterable[ComputeDomain]) -> tuple[WorkloadDomain, ...]:
    """Return the ComputeDomains for `gkm status`; ready and unused domains come last."""
    domains = sorted(map(_workload_domain, found), key=lambda one: (one.namespace, one.name))
    return tuple(sorted(domains, key=lambda one: one.state in ("ready", "unused")))


def _workload_domain(domain: ComputeDomain) -> WorkloadDomain:
    metadata = domain.metadata
    ready = parse_readiness(metadata.annotation(MNNVL_READY))
    if ready is None:
        state = "terminating" if metadata.terminating else "not reported"
        return WorkloadDomain(metadata.namespace, metadata.name, state, 0, 0, 0, "", "")
    unused = (ready.status, ready.reason) == (FALSE, ReadyReason.WAITING_FOR_PODS)
    state = "ready" if ready.status == TRUE else "unused" if unused else "not ready"
    return WorkloadDomain(
        metadata.namespace,
        metadata.name,
        "terminating" if metadata.terminating else state,
        ready.expected,
        ready.joined,
        ready.ready,
        ready.reason,
        ready.message,
    )


def runs(found: Iterable[Run]) -> tuple[RunState, ...]:
    """Return the Runs for `gkm status`, those without a plan first."""
    states = sorted(map(_run, found), key=lambda one: (one.namespace, one.name))
    return tuple(sorted(states, key=lambda one: one.state == "planned"))


def _run(run: Run) -> RunState:
    planned = run.status.condition("Planned")
    state = "waits" if planned is None else "planned" if planned.status == TRUE else "not planned"
    return RunState(
        namespace=run.metadata.namespace,
        name=run.metadata.name,
        state=state,
        gpus=run.spec.gpus,
        planned_gpus=run.status.gpus,
        domains=run.status.domains,
        plan=run.status.plan_ref.name if run.status.plan_ref else "",
        reason=planned.reason if planned else "NotReported",
        message=planned.message if planned else "the controllers have not reported it yet",
    )


def problems(results: Sequence[Result], left_out: Sequence[str]) -> Problems:
    """Return how many findings of each severity each check of gkm doctor has."""
    by_check: dict[str, Counter[Severity]] = {}
    for result in results:
        by_check.setdefault(result.check, Counter())[result.finding.severity] += 1
    total = sum(by_check.values(), Counter[Severity]())
    found = [_findings(check, counts) for check, counts in by_check.items()]
    faulty = [each for each in found if each.problems + each.warnings + each.not_checked]
    return Problems(
        checks=len(by_check),
        problems=total[Severity.PROBLEM],
        warnings=total[Severity.WARNING],
        not_checked=total[Severity.NOT_CHECKED],
        found=tuple(sorted(faulty, key=lambda one: (not one.problems, not one.not_checked))),
        left_out=tuple(left_out),
    )


def _findings(check: str, counts: Counter[Severity]) -> CheckFindings:
    return CheckFindings(check, counts[Severity.PROBLEM], counts[Severity.WARNING], counts[Severity.NOT_CHECKED])
