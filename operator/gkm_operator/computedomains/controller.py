"""The controller of ComputeDomains: threads, queue and metrics around the reconciler.

One thread looks at the API server now and then: whether ComputeDomains are installed, and whether Grove manages them.
The watches and the queue start when they are found for the first time; without them, nothing is done and the other
controllers of the process go on.
"""

import logging
import time
from collections.abc import Sequence
from threading import Event, Thread

from gkm.api.config import Config
from gkm.api.meta import Condition
from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.events import Recorder
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
_POLL_SECONDS = 0.05
BACKOFF = Backoff(0.5, 60.0)


class DomainsController:
    """Runs in the leader only. All state is rebuilt from lists."""

    def __init__(
        self,
        api: Api,
        config: Config,
        *,
        instance: str = "",
        namespace: str = DEFAULT_NAMESPACE,
        look_seconds: float = LOOK_SECONDS,
        backoff: Backoff = BACKOFF,
    ) -> None:
        self._api = api
        self._settings = config.network
        self._look_seconds = look_seconds
        self._backoff = backoff
        self._absence = Backoff(look_seconds, max(LONGEST_ABSENCE_SECONDS, look_seconds))
        self._stop = Event()
        self._look_now = Event()
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
        self._thread = Thread(target=self._work, name=NAME, daemon=True)
        metrics.QUEUE_DEPTH.labels(NAME).set_function(self.queue.__len__)
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

    def work(self) -> None:
        """Start, and return at once, whatever the API server does."""
        self._thread.start()

    def close(self) -> None:
        """Stop within a few seconds."""
        self._stop.set()
        self._look_now.set()
        self.queue.close(3.0)
        if self._thread.ident is not None:
            self._thread.join(1.0)
        self.status.close()
        self.watcher.close(1.0)

    def _reconcile(self, workload: Workload) -> float | None:
        try:
            return self._reconciler.reconcile(workload)
        except ApiError as error:
            if error.not_found:
                self._look_now.set()  # the kind may be gone
            raise

    def _work(self) -> None:
        failures = misses = 0
        while not self._stop.is_set():
            self._look_now.clear()
            try:
                found = observe(self._api, self._settings.grove_cluster_role, self.presence)
                self._apply(found)
            except ApiError as error:
                failures += 1
                _LOG.warning("API server not available", extra=fields(failures=failures, why=str(error)))
                self._stop.wait(self._backoff.pause(failures, error.retry_after))
                continue
            except Exception:  # noqa: BLE001 -- the thread must survive, for nothing would restart it
                _LOG.exception("look failed")
                found = Presence()
            failures, misses = 0, 0 if found.available else misses + 1
            # A burst of failed reconciles that ask for a look gets one.
            self._stop.wait(min(LEAST_LOOK_SECONDS, self._look_seconds))
            if self._working or not found.available:
                self._look_now.wait(self._absence.pause(misses) if misses else self._look_seconds)

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
        if not self._working and self._wait_for_lists():
            self._working = True
            _LOG.info("computedomains synced", extra=fields(domains=len(self.watcher.domains.values())))
            self.queue.start()
            self.status.work()

    def _wait_for_lists(self) -> bool:
        """Wait until every list is complete, at most until the next look; return whether they are."""
        deadline = time.monotonic() + self._look_seconds
        while not self._synced and time.monotonic() < deadline:
            if self._stop.wait(_POLL_SECONDS):
                return False
        return self._synced

    @property
    def _synced(self) -> bool:
        return self.watcher.synced and self.status.synced
