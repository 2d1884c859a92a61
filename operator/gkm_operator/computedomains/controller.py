"""The controller of ComputeDomains: threads, queue and metrics around the reconciler.

One thread looks at the API server now and then: whether ComputeDomains are installed, and whether Grove manages them.
The watches and the queue start when they are found for the first time; without them, nothing is done and the other
controllers of the process go on.
"""

import logging
from collections.abc import Sequence

from gkm.api.config import Config
from gkm.api.meta import Condition
from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff
from gkm.kube.api import Api
from gkm.kube.controller import Controller
from gkm.kube.errors import ApiError
from gkm.kube.events import Recorder
from gkm.kube.informers import Informers
from gkm.kube.refusals import RefusalEvents
from gkm.kube.secrets import DEFAULT_NAMESPACE
from gkm.kube.workqueue import WorkQueue

from gkm_operator import metrics
from gkm_operator.computedomains import events
from gkm_operator.computedomains.objects import Workload
from gkm_operator.computedomains.presence import Presence, observe
from gkm_operator.computedomains.reconciler import WorkloadReconciler
from gkm_operator.computedomains.status.controller import DomainStatusController
from gkm_operator.computedomains.watcher import DomainWatcher
from gkm_operator.computedomains.write_pacing import WritePacing

_LOG = logging.getLogger(__name__)

NAME = "computedomains"
WORKERS = 4
PER_NAMESPACE = 2
LOOK_SECONDS = 30.0
"""The interval of looks at the API server: five requests each, and where the hosts run IMEX the list of its devices."""
LEAST_LOOK_SECONDS = 5.0
LONGEST_ABSENCE_SECONDS = 120.0
"""The longest interval while ComputeDomains are not installed: most clusters never have them."""
BACKOFF = Backoff(0.5, 60.0)


class DomainsController(Controller):
    """Runs in the leader only. All state is rebuilt from lists."""

    def __init__(
        self,
        api: Api,
        config: Config,
        *,
        instance: str = "",
        informers: Informers | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        look_seconds: float = LOOK_SECONDS,
        backoff: Backoff = BACKOFF,
    ) -> None:
        super().__init__(NAME)
        self._api = api
        self._settings = config.network
        self._look_seconds = look_seconds
        self._backoff = backoff
        self._absence = Backoff(look_seconds, max(LONGEST_ABSENCE_SECONDS, look_seconds))
        self._misses = 0
        self.queue: WorkQueue[Workload] = WorkQueue(
            NAME,
            self._reconcile,
            workers=WORKERS,
            backoff=backoff,
            group=lambda workload: workload.namespace,  # a namespace of thousands delays no other
            per_group=PER_NAMESPACE,
            observe=metrics.reconcile_recorder(NAME),
        )
        recorder = Recorder(api, events.REPORTER, instance or NAME)
        on_refused = RefusalEvents(recorder)
        self.watcher = DomainWatcher(api, on_refused)
        pacing = WritePacing()  # of both halves: a write costs NVIDIA's controller the same, whoever sends it
        self.status = DomainStatusController(
            api,
            config,
            self.watcher,
            namespace=namespace,
            instance=instance or NAME,
            conditions=self.conditions,
            pacing=pacing,
            on_refused=on_refused,
            informers=informers,
        )
        observer = self.status.observer
        self._reconciler = WorkloadReconciler(
            api,
            self.watcher,
            observer.pods,
            recorder,
            settings=config.network,
            enqueue=self.queue.add,
            pacing=pacing,
        )
        self.watcher.domain_changed.append(observer.domain_changed)
        self.watcher.template_changed.append(observer.template_changed)
        self._working = False
        self.queues = [self.queue, *self.status.queues]
        metrics.COMPUTEDOMAINS.labels("missing").set_function(
            lambda: sum(self._reconciler.sets.missing.copy().values())
        )

    @property
    def presence(self) -> Presence:
        """Return what the last look found."""
        return self._reconciler.presence

    def conditions(self) -> Sequence[Condition]:
        """Return the conditions of the whole feature."""
        return self.presence.conditions()

    def run(self) -> None:
        """Look now and then. A burst of failed reconciles that ask for a look gets one."""
        self.repeat(self._look, self._backoff, least=min(LEAST_LOOK_SECONDS, self._look_seconds))

    def close_watches(self, seconds: float) -> None:
        """End the watches."""
        self.status.observer.close(seconds)
        self.watcher.close(seconds)

    def _reconcile(self, workload: Workload) -> float | None:
        try:
            return self._reconciler.reconcile(workload)
        except ApiError as error:
            if error.not_found:
                self.wake()  # the kind may be gone
            raise

    def _look(self) -> float:
        found = observe(self._api, self._settings.grove_cluster_role, self.presence)
        self._apply(found)
        if found.available:
            self._misses = 0
            return self._look_seconds if self._working else min(LEAST_LOOK_SECONDS, self._look_seconds)
        self._misses += 1
        return self._absence.pause(self._misses)

    def _apply(self, found: Presence) -> None:
        """Use what a look found; the queue starts once, when every list is complete."""
        if found is not self.presence:
            log_fields = fields(
                available=found.available, grove=found.grove_manages, imex=found.imex, why=found.message
            )
            _LOG.log(logging.INFO if found.available else logging.WARNING, "ComputeDomains checked", extra=log_fields)
            if found.available and found.imex is not self.presence.imex:
                self.status.imex_changed(found.imex)
            self._reconciler.presence = found
            self._reconciler.enqueue_all()
            self.status.capacity_changed()
        if not found.available:
            return
        self.watcher.start(sets=found.sets)
        self.status.watch(grove=found.sets)
        if not self._working and self.wait(self._all_listed, self._look_seconds):
            self._working = True
            self.status.capacity_changed()
            self.start_queues()

    def _all_listed(self) -> bool:
        return self.watcher.synced and self.status.synced
