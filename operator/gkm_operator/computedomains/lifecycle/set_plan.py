"""What to do about the ComputeDomains of one PodCliqueSet: create, let go, release. Pure."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from gkm.api.computedomains import ComputeDomain
from gkm.api.grove import PodCliqueSet

from gkm_operator.computedomains.claims import Unseen
from gkm_operator.computedomains.objects import DesiredDomain, is_released, of_set
from gkm_operator.mnnvl.required import SetDomainKey, difference, existing


@dataclass(frozen=True, slots=True)
class Required:
    """The domains that a set requires, and those that it may require besides.

    It may require a domain if a clique requests devices by a claim, or claim template, that cannot be seen: such a
    domain is not created, and not released either. `unseen` are these claims.
    """

    certainly: frozenset[SetDomainKey] = frozenset()
    possibly: frozenset[SetDomainKey] = frozenset()
    unseen: frozenset[Unseen] = frozenset()


NOTHING = Required()


@dataclass(frozen=True, slots=True)
class SetPlan:
    """The actions for a set; `pod_clique_set` is None if it does not exist.

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


def plan(
    pod_clique_set: PodCliqueSet | None,
    required: Required,
    domains: Collection[ComputeDomain],
    serves: Callable[[ComputeDomain], bool],
    is_abandoned: Callable[[ComputeDomain], bool] = lambda _domain: False,
) -> SetPlan:
    """Return the actions for a set and the domains of its name.

    Domains of an earlier set of the same name, and those without an owner, are released. A domain that another
    operator wrote counts as present, and nothing is done to it. `serves` returns whether a domain works for its pods,
    and `is_abandoned` whether all of these should have ended: such a domain, once released, has a successor.
    """
    uid = pod_clique_set.metadata.uid if pod_clique_set is not None else ""
    terminating = (domain for domain in domains if domain.written_by_gkm and domain.metadata.terminating)
    abandoned = {domain.metadata.uid: domain for domain in terminating if is_abandoned(domain)}
    held = {key: domain for key, domain in abandoned.items() if is_released(domain)}
    own = {
        domain.metadata.uid: domain
        for domain in domains
        if _controlled_by(domain, uid) and domain.metadata.uid not in held
    }
    found = difference(required.certainly, map(existing, own.values()))
    undecided = required.possibly - required.certainly
    excess = [own[domain.uid] for domain in found.release if domain.key not in undecided]
    former = [domain for domain in domains if domain.metadata.uid not in own]
    lost = [own[domain.uid] for domain in found.lost]
    return SetPlan(
        pod_clique_set,
        () if pod_clique_set is None else tuple(of_set(pod_clique_set, key) for key in found.create),
        tuple(
            domain
            for domain in lost
            if _may_release(domain) and not (serves(domain) and domain.metadata.uid not in abandoned)
        ),
        tuple(domain for domain in (*excess, *former) if _may_release(domain)),
        tuple(domain for domain in own.values() if not domain.written_by_gkm),
        required.unseen if undecided else frozenset(),
        tuple(domain for domain in held.values() if existing(domain).key in required.certainly),
        any(domain.in_use for domain in lost),
    )


def unused_only(found: SetPlan) -> SetPlan:
    """Return the plan for a set that can be neither found nor ruled out: only domains without pods are released."""
    return SetPlan(None, release=tuple(domain for domain in found.release if not domain.in_use))


def _may_release(domain: ComputeDomain) -> bool:
    return domain.written_by_gkm and not is_released(domain)


def _controlled_by(domain: ComputeDomain, uid: str) -> bool:
    controller = domain.metadata.controller
    return controller is not None and controller.uid == uid
