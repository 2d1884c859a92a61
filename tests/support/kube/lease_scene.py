"""Candidates for one lease, whose clocks a test sets."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from gkm.kube.elector import Elector
from gkm.kube.leases import LEASES, LeaseSpec, LeaseTiming
from support.kube.fake_api import FakeApi

TERMS = LeaseTiming(duration=15, deadline=10, retry=2)
MOMENT = datetime(2026, 11, 21, 12, 30, 15, 5, tzinfo=UTC)


@dataclass
class Scene:
    api: FakeApi = field(default_factory=FakeApi)
    now: float = 0.0
    """The monotonic clock of all candidates."""
    day: timedelta = timedelta()
    """The offset of the time of day."""

    def candidate(self, identity: str) -> Elector:
        return Elector(
            self.api,
            "gkm-system",
            "gkm",
            identity,
            timing=TERMS,
            clock=lambda: self.now,
            now=lambda: MOMENT + timedelta(seconds=self.now) + self.day,
        )

    def spec(self) -> LeaseSpec:
        return self.api.get(LEASES, "gkm", "gkm-system").spec
