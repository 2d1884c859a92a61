"""What to do about the ComputeDomains of one PodCliqueSet: create, let go, release. Pure."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from gkm.api.computedomains import ComputeDomain
from gkm.api.grove import PodCliqueSet

from gkm_operator.computedomains.objects import DesiredDomain, of_set
from gkm_operator.mnnvl.difference import difference, existing
from gkm_operator.mnnvl.required import DomainKey


@dataclass(frozen=True, slots=True)
class Required:
    """The domains that a set requires, and those that it may require besides.

    It may require a domain if a clique requests devices by a claim template that cannot be seen: such a domain is not
    created, and not released either.
    """

    certainly: frozenset[DomainKey] = frozenset()
    possibly: frozenset[DomainKey] = frozenset()


NOTHING = Required()


@dataclass(frozen=True, slots=True)
class SetPlan:
    """The actions for a set; `pod_clique_set` is None if it does not exist.

    `lost` are required domains that are being deleted and do not work any more.
    """

    pod_clique_set: PodCliqueSet | None
    create: tuple[DesiredDomain, ...] = ()
    lost: tuple[ComputeDomain, ...] = ()
    release: tuple[ComputeDomain, ...] = ()
    not_ours: tuple[ComputeDomain, ...] = ()


def plan(
    pod_clique_set: PodCliqueSet | None,
    required: Required,
    domains: Collection[ComputeDomain],
    serves: Callable[[ComputeDomain], bool],
) -> SetPlan:
    """Return the actions for a set and the domains of its name.

    Domains of an earlier set of the same name, and those without an owner, are released. A domain that another
    operator wrote counts as present, and nothing is done to it. `serves` returns whether a domain works for its pods.
    """
    uid = pod_clique_set.metadata.uid if pod_clique_set is not None else ""
    own = {domain.metadata.uid: domain for domain in domains if _controlled_by(domain, uid)}
    found = difference(required.certainly, map(existing, own.values()))
    undecided = required.possibly - required.certainly
    excess = [own[domain.uid] for domain in found.release if domain.key not in undecided]
    former = [domain for domain in domains if domain.metadata.uid not in own]
    lost = [own[domain.uid] for domain in found.lost]
    return SetPlan(
        pod_clique_set,
        () if pod_clique_set is None else tuple(of_set(pod_clique_set, key) for key in found.create),
        tuple(domain for domain in lost if domain.written_by_gkm and not serves(domain)),
        tuple(domain for domain in (*excess, *former) if domain.written_by_gkm),
        tuple(domain for domain in own.values() if not domain.written_by_gkm),
    )


def unused_only(found: SetPlan) -> SetPlan:
    """Return the plan for a set that can be neither found nor ruled out: only domains without pods are released."""
    return SetPlan(None, release=tuple(domain for domain in found.release if not domain.in_use))


def _controlled_by(domain: ComputeDomain, uid: str) -> bool:
    controller = domain.metadata.controller
    return controller is not None and controller.uid == uid
