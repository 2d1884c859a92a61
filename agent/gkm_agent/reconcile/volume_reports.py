"""Read what the CSI process reports about volumes besides their records: waiting pods and compiled kernels."""

import logging
from collections.abc import Mapping, Sequence

from gkm.api.nodes import CapturedImage
from gkm.hoststate import kernel_misses, waiting_pods
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.kernel_misses import KernelMissCounts
from gkm.hoststate.layout import Layout
from gkm.hoststate.logs import fields
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState

from gkm_agent.caches.decisions import Observed
from gkm_agent.report.status import NO_MISSES, NodeFindings

_LOG = logging.getLogger(__name__)


class VolumeReports:
    """The reports of one node; an unreadable one is logged once and counts as none."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._last_error = ""

    def findings(
        self, observed: Mapping[CacheRef, Observed], captures: Mapping[str, Sequence[CapturedImage]]
    ) -> NodeFindings:
        """Return the reports; of waiting pods only those whose cache fits no GPU."""
        unfit = [ref for ref, one in observed.items() if one.pointer and one.pointer.state is CacheState.INCOMPATIBLE]
        awaited = [ref for ref in unfit if waiting_pods.is_pod_waiting(self._layout, ref)]
        return NodeFindings(captures, awaited, self._misses())

    def _misses(self) -> Mapping[str, KernelMissCounts]:
        try:
            found = kernel_misses.load(self._layout)
        except UnreadableState as error:
            if str(error) != self._last_error:
                self._last_error = str(error)
                _LOG.warning("compiled kernels not read", extra=fields(why=self._last_error))
            return NO_MISSES
        self._last_error = ""
        return found
