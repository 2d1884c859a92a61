"""Metrics of free and fragmented GPUs, which show a shortage before a run is refused."""

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

from gkm.api.topology_settings import MixGroup
from gkm.packing.conversion import plan_fragmentation
from gkm.packing.values import Location, Node
from gkm.topology.eligibility import unusable
from gkm.topology.survey import TopologySurvey
from gkm.topology.usage import Usage

from gkm_operator import metrics

SECONDS = 15.0
"""Minimum seconds between two measurements; a measurement of 12,500 nodes takes 0.2 seconds."""


class FragmentationMetrics:
    """Measures which free GPUs the expected mix of runs could use. Only the planning thread may use it."""

    def __init__(self, mix: Sequence[MixGroup], clock: Callable[[], float] = time.monotonic) -> None:
        self._mix = mix
        self._clock = clock
        self._state: Hashable = None
        self._measured = -SECONDS

    def update(self, state: Hashable, survey: TopologySurvey, usage: Usage, reserved: Mapping[str, int]) -> None:
        """Set the metrics if the state has changed and the last measurement is at least SECONDS old."""
        if state == self._state or self._clock() < self._measured + SECONDS:
            return
        # Imported when the first Run comes: they load numpy, and a cluster may never have a Run.
        from gkm.packing.fragmentation import fragmentation  # noqa: PLC0415
        from gkm.packing.inventory import Inventory  # noqa: PLC0415

        found = fragmentation(Inventory.from_nodes(free_nodes(survey, usage, reserved)), self._mix)
        self._state, self._measured = state, self._clock()
        written = plan_fragmentation(found)
        metrics.LARGEST_GROUP.set(written.largest_group)
        metrics.record_fragmentation("all", written.free_gpus, written.expected_unusable_gpus)
        found_levels = {level.level: level for level in written.levels}
        for name in Location._fields:
            level = found_levels.get(name)
            free, lost = (level.most_free_gpus, level.most_unusable_gpus) if level else (0, 0.0)
            metrics.record_fragmentation(name, free, lost)


def free_nodes(survey: TopologySurvey, usage: Usage, reserved: Mapping[str, int]) -> Iterator[Node]:
    """Yield the nodes, with their free GPUs, that a Run with default tolerations may use, of every flavor.

    A run has one flavor, so the nodes of each flavor in a domain are a separate domain.
    """
    for located in survey.located:
        node, name = located.node, located.node.name
        if not located.gpus or name in usage.faults or unusable(node, located.health) is not None:
            continue
        free = located.gpus - usage.gpus.get(name, 0) - reserved.get(name, 0)
        place = located.location._replace(domain=f"{located.location.domain} {located.flavor}")
        yield Node(name, place, located.gpus, max(0, free))
