"""A new image of 1 GB on many nodes: in virtual time against a model of a registry, and by real agents on loopback.

The simulation runs the product's own pauses, jitter, paces and open ranks (rollout_nodes). The real part starts agents
in static mode behind the real distribution as a pull-through cache (rollout_agents).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import rollout_agents
from figures import Result
from rollout_nodes import EXTRACT_SECONDS, Simulation
from rollout_registry import RegistryLimits

IMAGE_BYTES = 1e9
FIRST_MINUTE = 60
"""Seconds: the first retries of nodes that all began within a second are closer together than the later ones."""
BANDWIDTH = 12.5e9
"""100 Gbit/s: 10,000 copies of 1 GB take 800 seconds at best."""


@dataclass(frozen=True)
class RolloutSize:
    """How many nodes are simulated, and how many real agents there are in each part."""

    nodes: int
    agents: int
    cold_agents: int


FULL = RolloutSize(nodes=10_000, agents=100, cold_agents=20)
SMALLEST = RolloutSize(nodes=100, agents=2, cold_agents=2)


@dataclass(frozen=True)
class Scenario:
    """A registry, and the bound of the rollout, if any."""

    limits: RegistryLimits
    at_a_time: int | None = None
    busy: bool = False
    """Whether it answers 429, to an unbounded rollout."""


SCENARIOS: Mapping[str, Scenario] = {
    "unlimited": Scenario(RegistryLimits(BANDWIDTH)),
    "limit_1000": Scenario(RegistryLimits(BANDWIDTH, 1000.0), busy=True),
    "limit_500": Scenario(RegistryLimits(BANDWIDTH, 500.0), busy=True),
    "limit_500_retry_after_1": Scenario(RegistryLimits(BANDWIDTH, 500.0, 1.0), busy=True),
    "limit_500_retry_after_60": Scenario(RegistryLimits(BANDWIDTH, 500.0, 60.0), busy=True),
    "closed_for_an_hour": Scenario(RegistryLimits(BANDWIDTH, 1000.0, 60.0, closed_until=3600.0), busy=True),
    "1000_at_a_time": Scenario(RegistryLimits(BANDWIDTH, 500.0, 60.0), at_a_time=1000),
    "200_at_a_time": Scenario(RegistryLimits(BANDWIDTH, 500.0, 60.0), at_a_time=200),
}


def run(size: RolloutSize) -> Result:
    """Simulate every scenario, then run the real agents."""
    figures: dict[str, float] = {}
    for name, scenario in SCENARIOS.items():
        figures |= {f"{name}.{figure}": value for figure, value in simulate(scenario, size.nodes).items()}
    busy = [name for name, scenario in SCENARIOS.items() if scenario.busy]
    figures["p99_ready_over_ideal"] = max(figures[f"{name}.p99_over_ideal"] for name in busy)
    figures["last_ready_over_ideal"] = max(figures[f"{name}.last_over_ideal"] for name in busy)
    figures |= rollout_agents.measure(size.agents, size.cold_agents)
    return Result({name: round(value, 3) for name, value in figures.items()}, [])


def simulate(scenario: Scenario, nodes: int) -> dict[str, float]:
    """Return the figures of one scenario; times are seconds after the object was created."""
    simulation = Simulation(nodes, IMAGE_BYTES, scenario.limits, scenario.at_a_time)
    ready = simulation.run()
    ideal = scenario.limits.closed_until + nodes * IMAGE_BYTES / BANDWIDTH + EXTRACT_SECONDS
    registry = simulation.registry
    later = [count for second, count in simulation.retries.items() if second > FIRST_MINUTE]
    return {
        "ready_50_s": ready[nodes // 2],
        "ready_99_s": ready[nodes * 99 // 100],
        "ready_100_s": ready[-1],
        "p99_over_ideal": ready[nodes * 99 // 100] / ideal,
        "last_over_ideal": ready[-1] / ideal,
        "egress_gb": registry.sent / 1e9,
        "requests": float(registry.requests.total()),
        "refused": float(registry.refused),
        "peak_requests_s": float(max(registry.requests.values())),
        "largest_retry_wave_percent": 100 * max(later, default=0) / nodes,
        "status_writes": float(simulation.writes.total()),
        "peak_status_writes_s": float(max(simulation.writes.values())),
    }
