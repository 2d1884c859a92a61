"""Reconciles the ComputeDomains of one PodCliqueSet: `plan_set` decides which domains to create and to release.

The feature switch does not apply here: annotated sets are scaled, repaired and released even while it is off.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from gkm.api.computedomains import ComputeDomain
from gkm.api.grove import PodCliqueSet
from gkm.api.network_settings import Network
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.events import EventBody, Regarding
from gkm.kube.live_objects import live_object
from gkm.kube.resources import PODCLIQUESETS

from gkm_operator.actions import run_all
from gkm_operator.computedomains import events
from gkm_operator.computedomains.claims import UNSEEN_SECONDS, ClaimReader, Unseen, any_claim
from gkm_operator.computedomains.lifecycle.writer import DomainWriter
from gkm_operator.computedomains.objects import DesiredDomain, Workload, is_released, of_set
from gkm_operator.computedomains.pacing import CreationPacing
from gkm_operator.computedomains.presence import Presence
from gkm_operator.computedomains.watcher import OVERDUE_SECONDS, DomainWatcher
from gkm_operator.mnnvl import dialect
from gkm_operator.mnnvl.gpu_requests import GPURequests
from gkm_operator.mnnvl.required import SetDomainKey, difference, key_of, limit_problem, required_domains


@dataclass(frozen=True, slots=True)
class Required:
    """The ComputeDomains that a PodCliqueSet needs for certain, and further domains that it may need.

    It may require a domain if a clique requests devices by a claim, or claim template, that cannot be seen: such a
    domain is not created, and not released either. `unseen` are these claims.
    """

    certainly: frozenset[SetDomainKey] = frozenset()
    possibly: frozenset[SetDomainKey] = frozenset()
    unseen: frozenset[Unseen] = frozenset()


NOTHING = Required()


@dataclass(frozen=True, slots=True)
class SetPlan:
    """The actions for the ComputeDomains of a PodCliqueSet; `pod_clique_set` is None if the set does not exist.

    `lost` are required domains that are being deleted and do not work any more. `unseen` are the claims that decide
    whether the set requires more domains. `held` are domains that were to go and that pods on dead nodes hold, and
    `waits` is whether a required domain is being deleted while pods use it.
    """

    pod_clique_set: PodCliqueSet | None
    create: tuple[DesiredDomain, ...] = ()
    lost: tuple[ComputeDomain, ...] = ()
    release: tuple[ComputeDomain, ...] = ()
    not_ours: tuple[ComputeDomain, ...] = ()
    unseen: frozenset[Unseen] = frozenset()
    held: tuple[ComputeDomain, ...] = ()
    waits: bool = False


def plan_set(
    pod_clique_set: PodCliqueSet | None,
    required: Required,
    domains: Collection[ComputeDomain],
    serves: Callable[[ComputeDomain], bool],
    is_abandoned: Callable[[ComputeDomain], bool] = lambda _domain: False,
) -> SetPlan:
    """Return which ComputeDomains of a PodCliqueSet to create and to release.

    Domains of an earlier set of the same name, and domains without an owner, are released. A domain that another
    operator wrote is present, and stays as it is. `serves` returns whether a domain works for its pods, and
    `is_abandoned` whether all of these should have ended: such a domain, once released, has a successor.
    """
    uid = pod_clique_set.metadata.uid if pod_clique_set is not None else ""
    terminating = (domain for domain in domains if domain.written_by_gkm and domain.metadata.terminating)
    abandoned = {domain.metadata.uid: domain for domain in terminating if is_abandoned(domain)}
    held = {key: domain for key, domain in abandoned.items() if is_released(domain)}
    controlled = [domain for domain in domains if _controlled_by(domain, uid)]
    own = {domain.metadata.uid: domain for domain in controlled if domain.metadata.uid not in held}
    found = difference(required.certainly, own.values())
    undecided = required.possibly - required.certainly
    excess = [domain for domain in found.release if key_of(domain) not in undecided]
    former = [domain for domain in domains if domain.metadata.uid not in own]
    dead = [domain for domain in found.lost if domain.metadata.uid in abandoned or not serves(domain)]
    return SetPlan(
        pod_clique_set,
        () if pod_clique_set is None else tuple(of_set(pod_clique_set, key) for key in found.create),
        tuple(filter(_may_release, dead)),
        tuple(domain for domain in (*excess, *former) if _may_release(domain)),
        tuple(domain for domain in own.values() if not domain.written_by_gkm),
        required.unseen if undecided else frozenset(),
        tuple(domain for domain in held.values() if key_of(domain) in required.certainly),
        any(domain.in_use for domain in found.lost),
    )


def unused_only(found: SetPlan) -> SetPlan:
    """Return the plan reduced to releasing unused domains, for a set that may or may not exist."""
    return SetPlan(None, release=tuple(domain for domain in found.release if not domain.in_use))


def _may_release(domain: ComputeDomain) -> bool:
    return domain.written_by_gkm and not is_released(domain)


def _controlled_by(domain: ComputeDomain, uid: str) -> bool:
    controller = domain.metadata.controller
    return controller is not None and controller.uid == uid


MAX_ACTIONS = 25
"""Limit of creations, and of releases, in one pass; then other sets take their turn."""
REST_SECONDS = 1.0
"""Seconds until the next pass for the remaining actions."""

_REPORTED = 8
"""Events of one reconcile about domains that are held."""

Action = Callable[[], None]


class SetReconciler:
    """Reconciles the ComputeDomains of one PodCliqueSet. Thread-safe for different sets."""

    def __init__(
        self,
        api: Api,
        watcher: DomainWatcher,
        writer: DomainWriter,
        settings: Network,
        *,
        claims: ClaimReader,
        creations: CreationPacing,
        is_abandoned: Callable[[ComputeDomain], bool],
    ) -> None:
        self.missing: dict[Workload, int] = {}
        """The number of domains that a set lacks; without complete ones."""
        self._api = api
        self._watcher = watcher
        self._writer = writer
        self._claims = claims
        self._creations = creations
        self._is_abandoned = is_abandoned
        self._settings = settings
        self._gpus = GPURequests(settings)

    def number_missing(self) -> int:
        """Return how many domains all sets together lack."""
        return sum(self.missing.copy().values())

    def reconcile(self, workload: Workload, presence: Presence) -> float | None:
        """Reconcile the ComputeDomains of one set; return the seconds until the next pass, None if no work is left.

        Raises:
            ApiError, Retry: something failed; what else the set needs was tried, unless it would fail, too.
        """
        pod_clique_set = self._watcher.sets.get(workload.name, workload.namespace)
        if pod_clique_set is None or presence.grove_manages:
            self.missing.pop(workload, None)
        if not presence.available:
            self._report(pod_clique_set, events.unavailable(presence.message), presence.since)
            return None
        is_large = pod_clique_set is not None and bool(pod_clique_set.metadata.oversized)
        found = self._plan_live(workload) if is_large else self._plan(pod_clique_set, workload)
        if found.release and not is_large:
            # The watch of sets may lag behind another leader's, which made these domains.
            found = self._plan_live(workload)
        if presence.grove_manages and found.pod_clique_set is not None:
            body = events.grove_manages(self._settings.grove_cluster_role)
            self._report(found.pod_clique_set, body, presence.since)
            return None
        return self._carry_out(found, workload)

    def _carry_out(self, found: SetPlan, workload: Workload) -> float | None:
        pod_clique_set, regarding = found.pod_clique_set, None
        self.missing.pop(workload, None)
        if pod_clique_set is not None:
            regarding = events.of_set(pod_clique_set)
            self._report_problems(found, pod_clique_set, regarding)
        releases = [partial(self._writer.release, domain, regarding, lost=True) for domain in found.lost]
        releases += [partial(self._writer.release, domain, regarding) for domain in found.release]
        waits = [REST_SECONDS] if len(releases) > MAX_ACTIONS else []
        creations: Iterable[Action] = ()
        if regarding is not None and found.create:
            self.missing[workload] = len(found.create)
            creations = self._creations_of(workload, found.create, regarding, waits)
        run_all(releases[:MAX_ACTIONS], creations)
        if not waits:
            self.missing.pop(workload, None)
        if any_claim(found.unseen):
            waits.append(UNSEEN_SECONDS)
        if found.waits:
            waits.append(OVERDUE_SECONDS)
        return min(waits, default=None)

    def _creations_of(
        self, workload: Workload, wanted: Sequence[DesiredDomain], regarding: Regarding, waits: list[float]
    ) -> Iterator[Action]:
        """Yield the creations that may be now; append the seconds until the next ones to `waits`."""
        for number, desired in enumerate(wanted):
            wait = REST_SECONDS
            if number < MAX_ACTIONS:
                wait = self._creations.seconds(workload.namespace, workload, len(wanted) - number)
            if wait > 0:
                waits.append(wait)
                return
            yield partial(self._writer.create, desired, regarding)

    def _report_problems(self, found: SetPlan, pod_clique_set: PodCliqueSet, regarding: Regarding) -> None:
        for domain in found.not_ours:
            self._writer.emit(regarding, events.not_ours(domain.metadata.name), domain.metadata.uid)
        for domain in sorted(found.held, key=lambda held: held.metadata.name)[:_REPORTED]:
            self._writer.emit(regarding, events.held(domain), domain.metadata.uid)
        if found.unseen:
            self._writer.emit(regarding, events.undecided(found.unseen), str(pod_clique_set.metadata.generation))
        if found.create:
            classes = self._watcher.device_classes(pod_clique_set.metadata.namespace, claims=self._claims)
            if problem := limit_problem(pod_clique_set, self._gpus, classes):
                self._writer.emit(regarding, events.too_many(problem), str(pod_clique_set.metadata.generation))

    def _report(self, pod_clique_set: PodCliqueSet | None, body: EventBody, occasion: str) -> None:
        """Send an event about an enrolled set."""
        if pod_clique_set is None or pod_clique_set.metadata.terminating or not dialect.enrolls(pod_clique_set):
            return
        self._writer.emit(events.of_set(pod_clique_set), body, occasion)

    def _plan(self, pod_clique_set: PodCliqueSet | None, workload: Workload) -> SetPlan:
        required = NOTHING
        # A set that is not enrolled costs no read of a claim.
        if pod_clique_set is not None and not pod_clique_set.metadata.terminating and dialect.enrolls(pod_clique_set):
            unseen = set[Unseen]()
            certainly, possibly = (
                required_domains(
                    pod_clique_set,
                    self._gpus,
                    self._watcher.device_classes(workload.namespace, unknown, claims=self._claims, unseen=unseen),
                )
                for unknown in ((), self._settings.gpu_device_classes)
            )
            required = Required(certainly, possibly, frozenset(unseen))
        return plan_set(
            pod_clique_set, required, self._watcher.domains_of(workload), self._watcher.serves, self._is_abandoned
        )

    def _plan_live(self, workload: Workload) -> SetPlan:
        """Return the plan for the set as the API server has it now.

        Raises:
            Retry: the set exists and cannot be decoded, so what it requires is not known.
        """
        try:
            pod_clique_set = live_object(self._api, PODCLIQUESETS, workload.namespace, workload.name)
        except ApiError as error:
            # No PodCliqueSet at all: their kind, or its version, was removed. Pods may still run.
            if not error.not_found:
                raise
            return unused_only(self._plan(None, workload))
        return self._plan(pod_clique_set, workload)
