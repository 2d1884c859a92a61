"""The controller of Run: one thread that reconciles all runs after a change, and then pauses as long as that took."""

import logging
import time
from collections.abc import Callable, Mapping
from threading import Event

from gkm.api.config import Config
from gkm.hoststate.logs import fields
from gkm.kube.api import Api
from gkm.kube.controller import Controller
from gkm.kube.elector import NotLeading
from gkm.kube.events import Recorder
from gkm.kube.informers import Informers
from gkm.kube.refusals import RefusalEvents
from gkm.kube.secrets import DEFAULT_NAMESPACE
from gkm.topology.nodes import Node
from gkm.topology.trees.merge import Named

from gkm_operator import metrics
from gkm_operator.nodes import NODES
from gkm_operator.plans.planner import Planner
from gkm_operator.plans.planning.fragmentation_metrics import FragmentationMetrics
from gkm_operator.plans.reconciler import RunReconciler
from gkm_operator.plans.state.node_loss import GracePeriod
from gkm_operator.plans.state.objects import PlanIndex, PodsReports, no_reports
from gkm_operator.plans.state.watcher import ClusterWatcher, PodsUnread, TopologyUnread
from gkm_operator.plans.write.flavors import FlavorCounts
from gkm_operator.plans.write.writer import FIELD_MANAGER, PlanWriter

_LOG = logging.getLogger(__name__)

CALM_SECONDS = 1.0
"""Seconds between a change and the next pass, so that one pass covers several changes."""
PAUSE_SECONDS = 2.0
"""Minimum pause in seconds between two passes."""
REQUEST_CALM_SECONDS = 0.1
"""Seconds between a change of a Run and the next pass: a person or a gated pod waits for it."""
IDLE_SECONDS = 30.0
"""Maximum seconds between two passes: no watch reports that a plan expires."""
NAME = "plans"


class PlansController(Controller):
    """The controller that makes PlacementPlans for Runs.

    `sources`: see ClusterWatcher. Call `wake` when they have changed.
    """

    def __init__(
        self,
        api: Api,
        config: Config,
        *,
        instance: str = "",
        informers: Informers | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        calm: float = CALM_SECONDS,
        pause: float = PAUSE_SECONDS,
        grace: GracePeriod | None = None,
        sources: Callable[[], Named | None] | None = None,
        pods: PodsReports = no_reports,
    ) -> None:
        super().__init__(NAME)
        self._api = api
        self._namespace = namespace
        self._calm = calm
        self._pause = pause
        self._requested = Event()
        self._waiting = 0
        index = PlanIndex()
        self.flavors = FlavorCounts(config.topology.labels.flavor, config.packing.flavors)
        recorder = Recorder(api, "gkm.io/plans", instance or FIELD_MANAGER)
        self._writer = PlanWriter(api, index, recorder)
        self._reconciler = RunReconciler(
            self._writer,
            Planner(index, config.packing),
            grace=grace,
            fragmentation=FragmentationMetrics(config.packing.mix),
            namespace_share=config.packing.namespace_share,
            pods=pods,
        )
        shared = informers or Informers(api)
        shared.of(NODES).subscribe(self._flavor_changed)
        self.watcher = ClusterWatcher(
            api,
            index,
            config.topology,
            self.wake,
            self.request,
            on_refused=RefusalEvents(recorder),
            informers=shared,
            sources=sources,
        )
        self._observe = metrics.reconcile_recorder(NAME)

    @property
    def depths(self) -> Mapping[str, Callable[[], int]]:
        """Return the queue's depth by name: a function that returns the number of Runs waiting for a plan."""
        return {NAME: lambda: self._waiting}

    def _flavor_changed(self, old: Node | None, new: Node | None) -> None:
        if self.flavors.change(old, new):
            self.wake()

    def close_watches(self, seconds: float) -> None:
        """End the controller's watches within `seconds`."""
        self.watcher.close(seconds)

    def request(self) -> None:
        """Start a planning pass at once, because a Run has changed."""
        self._requested.set()
        self.wake()

    def stop(self) -> None:
        """Prevent new planning passes; return at once."""
        super().stop()
        self._requested.set()

    def run(self) -> None:
        """Plan all Runs after each change, and pause for as long as a pass took, until `stop`."""
        if not self.watcher.start(self._stop):
            return
        _LOG.info("lists of a controller complete, it starts to work", extra=fields(controller=NAME))
        self.wake()
        while not self._stop.is_set():
            self._wake.wait(self._reconciler.seconds_remaining(IDLE_SECONDS))
            self._rest(self._calm, min(self._calm, REQUEST_CALM_SECONDS))
            if self._stop.is_set():
                return
            self._wake.clear()
            self._requested.clear()
            began = time.monotonic()
            if not self._reconcile():
                return
            self._rest(self._pause, time.monotonic() - began)

    def _rest(self, seconds: float, least: float) -> None:
        """Wait so many seconds, and `least` at least; the change of a Run ends the wait after `least`."""
        if not self._stop.wait(least):
            self._requested.wait(max(0.0, seconds - least))

    def _reconcile(self) -> bool:
        """Do one pass; return whether the thread continues. It survives every error: no other code would restart it."""
        began, result = time.monotonic(), "again"
        try:
            if not self.flavors.write(self._api, self._namespace):
                self.wake()
            if not (self.watcher.any_runs and self.watcher.list_nodes_and_pods(self._stop)):
                result = "done"
                return not self._stop.is_set()
            if not self._writer.settle():
                self.wake()
                return True
            found = self._reconciler.reconcile(self.watcher.snapshot())
            self._waiting = found.waiting
            if found.more:
                self.wake()
            result = "done"
        except NotLeading as error:
            _LOG.warning("planning of Runs stopped, this replica no longer leads", extra=fields(why=str(error)))
            return False
        except (PodsUnread, TopologyUnread) as error:
            _LOG.error("no Run planned in this pass, data of the cluster is missing", extra=fields(why=str(error)))
        except Exception:  # noqa: BLE001 -- the thread must survive
            _LOG.exception("planning of Runs failed, the next pass tries again")
            result = "failed"
            self.wake()
        finally:
            self._observe(result, time.monotonic() - began)
        return True
