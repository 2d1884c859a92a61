"""The integer programs of one plan have one deadline, however many there are: one for each share and area."""

from dataclasses import replace

import pytest
from gkm.packing import placement
from gkm.packing.domains.capacity import capacity
from gkm.packing.inventory import Inventory
from gkm.packing.placement import best_placement, fits
from gkm.packing.plan import plan
from gkm.packing.program import SearchLimits
from gkm.packing.values import Ceiling, Location, Node, Plan, Request, TooLargeError, Within

NODES = [
    Node(f"n{number}", Location("r", "c", f"b{number // 4}", f"d{number}"), 8, 8, frozenset({"s0", "s1"}))
    for number in range(8)
]
RUN = Request(24, 1, 2, ceilings=(Ceiling("s0", 13), Ceiling("s1", 13)))
"""Scopes overlap, so that only programs place it."""
IN_SHARES, IN_AREAS = replace(RUN, balanced=True), replace(RUN, within=Within.BLOCK)


class Clock:
    """A clock on which every program takes four seconds, and the time that each was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.given: list[float] = []
        monkeypatch.setattr(placement, "monotonic", lambda: self.now)
        monkeypatch.setattr("gkm.packing.program.monotonic", lambda: self.now)
        self._real = placement._modeled
        monkeypatch.setattr(placement, "_modeled", self._modeled)

    def _modeled(self, *args: object, limits: SearchLimits, **options: object) -> object:
        self.given.append(limits.deadline - self.now)
        found = self._real(*args, limits=limits, **options)  # type: ignore[arg-type]
        self.now += 4
        return found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.mark.parametrize("request_", [IN_SHARES, IN_AREAS], ids=["balanced", "within"])
def test_programs_share_one_deadline(clock: Clock, request_: Request) -> None:
    offer = capacity(Inventory.from_nodes(NODES), request_)
    assert best_placement(offer, request_, 6.0) is not None
    assert clock.given == [6.0, 2.0]


def test_a_placement_that_was_cut_short_claims_no_bound(clock: Clock) -> None:
    offer = capacity(Inventory.from_nodes(NODES), IN_SHARES)
    found = best_placement(offer, IN_SHARES, 6.0)
    assert found is not None
    assert (found.bound, len(clock.given) > 1) == (0, True)


@pytest.mark.parametrize("planned", [fits, best_placement])
def test_a_deadline_that_has_passed_is_an_error(clock: Clock, planned: object) -> None:
    offer = capacity(Inventory.from_nodes(NODES), IN_SHARES)
    clock.now = 7.0
    with pytest.raises(TooLargeError, match="not solved within 10 seconds"):
        planned(offer, IN_SHARES, 6.0)  # type: ignore[operator]
    assert clock.given == []


@pytest.mark.parametrize("run", [IN_SHARES, IN_AREAS], ids=["balanced", "within"])
def test_with_time_the_plan_is_proven(run: Request) -> None:
    answer = plan(NODES, run, "v")
    assert isinstance(answer, Plan)
    assert answer.metrics.gap == 0
