"""Why a plan is as it is, and what another policy would give: what a person compares before they agree to it."""

from collections import Counter
from dataclasses import dataclass, replace

from gkm.packing.domains.capacity import Capacity, capacity
from gkm.packing.errors import TooLargeError
from gkm.packing.inventory import Inventory
from gkm.packing.plan import plan
from gkm.packing.reasons import reasons
from gkm.packing.refusals.fixes import Changes, changes
from gkm.packing.values import Fix, Location, Metrics, Plan, Policy, Refusal, Request


@dataclass(frozen=True, slots=True)
class Alternative:
    """What a policy gives, or in a sentence why it gives nothing. `chosen` is the policy of the run."""

    policy: Policy
    metrics: Metrics | None
    chosen: bool
    problem: str = ""


@dataclass(frozen=True, slots=True)
class DomainUse:
    """What a plan does in a domain; GPUs are those of nodes that the run may use.

    `taken_gpus` are those of groups and of all spares that lie here; `lent_gpus` are among them, for groups of other
    domains. `stranded_gpus` stay free in a domain with groups; a domain that only lends strands none (calculus.md).
    """

    place: Location
    groups: int
    taken_gpus: int
    lent_gpus: int
    free_gpus: int
    stranded_gpus: int
    total_gpus: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """Of a plan its domains by place and why these; of a refusal what would make the run fit. Policies in any case.

    `reasons` of a refusal are its message, and why changes that may do are not among the `fixes`.
    """

    alternatives: tuple[Alternative, ...]
    domains: tuple[DomainUse, ...]
    reasons: tuple[str, ...]
    fixes: tuple[Fix, ...] = ()


def explain(inventory: Inventory, answer: Plan | Refusal, request: Request | None = None) -> Explanation:
    """Return why a run was planned so on this inventory, or refused.

    A plan knows its request. Of a refusal it is to be given for fixes to be looked for; else those count that it has.
    """
    if isinstance(answer, Refusal):
        looked = changes(inventory, request) if request and not answer.fixes else Changes(answer.fixes, ())
        policy = request.policy if request else None
        # No policy makes a run fit: it only chooses among plans.
        nothing = tuple(Alternative(each, None, each is policy, "the run does not fit") for each in Policy)
        return Explanation(nothing, (), (answer.message, *looked.notes), looked.fixes)
    compared = tuple(_alternative(inventory, answer, policy) for policy in Policy)
    offer = capacity(inventory, answer.request)
    metrics = {each.policy: each.metrics for each in compared if each.metrics is not None}
    return Explanation(compared, _domains(offer, answer), reasons(offer, answer, metrics))


def _alternative(inventory: Inventory, answer: Plan, policy: Policy) -> Alternative:
    if policy is answer.request.policy:
        return Alternative(policy, answer.metrics, chosen=True)
    try:
        other = plan(inventory, replace(answer.request, policy=policy), answer.inventory_version)
    except TooLargeError as error:
        return Alternative(policy, None, chosen=False, problem=str(error))
    if isinstance(other, Refusal):
        return Alternative(policy, None, chosen=False, problem=other.message)
    return Alternative(policy, other.metrics, chosen=False)


def _domains(offer: Capacity, answer: Plan) -> tuple[DomainUse, ...]:
    groups: Counter[Location] = Counter(group.place for group in answer.groups)
    taken: Counter[Location] = Counter()
    lent: Counter[Location] = Counter()
    for group in answer.groups:
        taken[group.place] += group.gpus
        for spare in group.spares:
            taken[spare.place] += spare.gpus
            if spare.place != group.place:
                lent[spare.place] += spare.gpus
    inventory = offer.inventory
    number = {place: at for at, place in enumerate(inventory.places)}
    found = []
    for place in sorted(taken):
        members = inventory.in_domain(number[place])
        usable = [inventory.nodes[member] for member in members if offer.node_kinds[member] >= 0]
        free = sum(node.free for node in usable)
        stranded = free - taken[place] if groups[place] else 0
        total = sum(node.total for node in usable)
        found.append(DomainUse(place, groups[place], taken[place], lent[place], free, stranded, total))
    return tuple(found)
