"""Which proposed changes are told: those that were planned and fit. As many are planned as two seconds allow."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from gkm.packing.domains.cover import TooLargeError
from gkm.packing.inventory import Inventory
from gkm.packing.plan import plan
from gkm.packing.refusals.feasible import smallest
from gkm.packing.values import Fix, Plan, Request

MAX_WORK = 120_000
"""Groups and spares of all plans together, some 60,000 a second; tables of several scopes count for more.

It is counted and not timed, so that the same changes are told on every machine.
"""
_STEPS_A_GROUP = 2_000
_MOST_STEPS = 100_000_000
"""Where planning with several scopes gives up, nearly (gkm.packing.domains.choosing_scopes)."""


class Proposal(NamedTuple):
    """A run that is expected to fit, where it is planned, and the change that it says. `what` names the kind."""

    what: str
    inventory: Inventory
    request: Request
    fix: Fix


@dataclass(slots=True)
class Missing:
    """Kinds of changes that are not told though they may do, by the reason why."""

    _by_reason: dict[str, list[str]] = field(default_factory=dict)

    def add(self, what: str, reason: str) -> None:
        """Remember that a kind of change is missing."""
        kinds = self._by_reason.setdefault(reason, [])
        if what not in kinds:
            kinds.append(what)

    def notes(self) -> tuple[str, ...]:
        """Return a sentence for each reason."""
        return tuple(f"not told: {_listed(kinds)}; {reason}" for reason, kinds in self._by_reason.items())


def verified(proposals: Iterable[Proposal], missing: Missing) -> Iterator[Fix]:
    """Yield the changes that were planned and fit, the smallest plans first; add those not planned to `missing`."""
    left = MAX_WORK
    for proposal in sorted(proposals, key=lambda one: _work(one.inventory, one.request)):
        left -= _work(proposal.inventory, proposal.request)
        if left < 0:
            missing.add(proposal.what, "it is told only when it was planned, and that would take seconds")
            continue
        try:
            answer = plan(proposal.inventory, proposal.request, "")
        except TooLargeError as error:
            missing.add(proposal.what, str(error))
            continue
        if isinstance(answer, Plan):
            yield proposal.fix


def _work(inventory: Inventory, request: Request) -> int:
    groups = smallest(request).groups
    scopes = len(request.ceilings)
    # A table has an axis for each scope whose ceiling binds. Powers beyond the third are above the most in any case.
    steps = len(inventory.places) * groups ** min(scopes - 1, 3) if scopes > 1 else 0
    return groups * (1 + request.spares) + min(steps, _MOST_STEPS) // _STEPS_A_GROUP


def _listed(names: list[str]) -> str:
    *some, last = names
    return f"{', '.join(some)} and {last}" if some else last
