"""The FabricSink of lists."""

from dataclasses import dataclass, field

from gkm_agent.fabric.report import FabricReport
from gkm_agent.interfaces import NotWritten


@dataclass
class FakeFabricSink:
    """Keeps what it is told; `away` makes it refuse."""

    away: bool = False
    reports: list[FabricReport] = field(default_factory=list)
    surveys: list[bytes] = field(default_factory=list)
    invalidations: int = 0

    def publish(self, report: FabricReport) -> None:
        self._reachable()
        self.reports.append(report)

    def invalidate(self) -> None:
        self.invalidations += 1

    def survey(self, packed: bytes) -> None:
        self._reachable()
        self.surveys.append(packed)

    def _reachable(self) -> None:
        if self.away:
            raise NotWritten("the sink is away")
