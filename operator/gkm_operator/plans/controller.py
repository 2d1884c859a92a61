"""The controller of Run: one thread that sweeps when something changed, and never more than half of the time."""

import logging
import time
from collections.abc import Callable
from threading import Event, Thread

from gkm.api.config import Config
from gkm.hoststate.logs import fields
from gkm.kube.api import Api
from gkm.kube.events import Recorder, Reporter
from gkm.kube.secrets import DEFAULT_NAMESPACE

from gkm_operator import metrics
from gkm_operator.caches.nodes.liveness import WatchedNode
from gkm_operator.plans.planner import Planner
from gkm_operator.plans.reconciler import ReconcileResult, RunReconciler
from gkm_operator.plans.state.node_loss import GracePeriod
from gkm_operator.plans.state.plan_index import PlanIndex
from gkm_operator.plans.state.watcher import ClusterWatcher, PodsUnread
from gkm_operator.plans.write.flavors import FlavorCounts
from gkm_operator.plans.write.writer import FIELD_MANAGER, NotLeading, PlanWriter

_LOG = logging.getLogger(__name__)

CALM_SECONDS = 1.0
"""So long a change waits for those that come with it."""
PAUSE_SECONDS = 2.0
IDLE_SECONDS = 30.0
"""Plans expire, and nodes stay away, without anybody saying so."""
NAME = "plans"


class PlansController:
    """Works for a leader only: a replica that stands ready watches nothing of this (docs/design/plans.md).

    `leads` is asked before everything that is written.
    """

    def __init__(
        self,
        api: Api,
        config: Config,
        *,
        leads: Callable[[], bool],
        instance: str = "",
        namespace: str = DEFAULT_NAMESPACE,
        flavors: FlavorCounts | None = None,
        calm: float = CALM_SECONDS,
        pause: float = PAUSE_SECONDS,
        patience: GracePeriod | None = None,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._calm = calm
        self._pause = pause
        self._changed = Event()
        self._stop = Event()
        self._waiting = 0
        book = PlanIndex()
        self.flavors = flavors or FlavorCounts(config.topology.labels.flavor, config.packing.flavors)
        self._writer = PlanWriter(api, book, Recorder(api, Reporter("gkm.io/plans", instance or FIELD_MANAGER)), leads)
        self._sweeper = RunReconciler(self._writer, Planner(self._writer, book, config.packing), patience=patience)
        self._watching = ClusterWatcher(api, book, config.topology, self._changed.set)
        self._observe = metrics.reconcile_recorder(NAME)
        self._thread = Thread(target=self._work, name=NAME, daemon=True)
        metrics.QUEUE_DEPTH.labels(NAME).set_function(lambda: self._waiting)

    def work(self) -> None:
        """Begin; every Node must have been shown to `see_node` once. Returns at once."""
        self._thread.start()

    def see_node(self, old: WatchedNode | None, new: WatchedNode | None) -> None:
        """Take in a difference of a Node, for the flavors that there are."""
        if self.flavors.see(old, new):
            self._changed.set()

    def close(self) -> None:
        """End within a few seconds; a plan that is under way is found by whoever follows."""
        self._stop.set()
        self._changed.set()
        if self._thread.ident is not None:
            self._thread.join(3.0)
        self._watching.close(1.0)

    def _work(self) -> None:
        if not self._watching.start(self._stop):
            return
        _LOG.info("plans synced")
        self._changed.set()
        while not self._stop.is_set():
            self._changed.wait(self._sweeper.patience.seconds_left(IDLE_SECONDS))
            if self._stop.wait(self._calm):
                return
            self._changed.clear()
            began = time.monotonic()
            if not self._round():
                return
            self._stop.wait(max(self._pause, time.monotonic() - began))

    def _round(self) -> bool:
        """Sweep; return whether this process goes on. Nothing else would start this thread again: it lives."""
        began, result = time.monotonic(), "again"
        try:
            if not self.flavors.write(self._api, self._namespace, self._writer):
                self._changed.set()
            if not (self._watching.any_runs and self._watching.list_nodes_and_pods(self._stop)):
                self._waiting = 0
                result = "done"
                return not self._stop.is_set()
            if not self._writer.settle():
                self._changed.set()
                return True
            self._apply_result(self._sweeper.reconcile(self._watching.snapshot()))
            result = "done"
        except NotLeading as error:
            _LOG.warning("plans no more", extra=fields(why=str(error)))
            return False
        except PodsUnread as error:
            _LOG.error("cannot plan", extra=fields(why=str(error)))
        except Exception:  # noqa: BLE001 -- as above
            _LOG.exception("sweep failed")
            result = "failed"
            self._changed.set()
        finally:
            self._observe(result, time.monotonic() - began)
        return True

    def _apply_result(self, swept: ReconcileResult) -> None:
        self._waiting = swept.waiting
        if swept.more:
            self._changed.set()
