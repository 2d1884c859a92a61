"""The status controller of ComputeDomains without threads: a test makes each change, passes time, and reconciles."""

from typing import Any

from gkm.api.config import Config
from gkm.api.domain_readiness import MNNVLReadiness, parse_readiness
from gkm.api.mnnvl_metadata import MNNVL_READY
from gkm.kube.api import Api, Change, ObjectEntry, WatchEvent
from gkm.kube.controller import WatchSet
from gkm.kube.resources import Resource
from gkm_operator.computedomains.pacing import WritePacing
from gkm_operator.computedomains.status.controller import DomainStatusController
from gkm_operator.computedomains.watcher import DomainWatcher
from gkm_operator.pods import WatchedPod
from support.grove.objects import NAMESPACE
from support.grove.observed import NAME, Json, domain_json, read, template_json
from support.host.waiting import until
from support.kube.fake_api import FakeApi
from support.kube.leading import leading
from support.kube.listing import reflector_of
from support.operator.domains import DOMAINS, TEMPLATES


def status_controller(api: Api, **more: Any) -> tuple[DomainWatcher, DomainStatusController]:  # noqa: ANN401
    """The controller beside the watches of ComputeDomains and claim templates, as DomainsController connects them."""
    watcher = DomainWatcher(api)
    changed = more.pop("capacity_changed", lambda: None)
    made = DomainStatusController(api, Config(), watcher, changed, instance="test", **more)
    watcher.domains.subscribe(made.observer.domain_changed)
    watcher.templates.subscribe(made.observer.template_changed)
    return watcher, made


class StatusScene:
    """A namespace with a ComputeDomain, a clock that stands still, and a controller whose queue does not run."""

    def __init__(self, *, template: bool = True, **metadata: Any) -> None:  # noqa: ANN401 -- JSON
        self.api = FakeApi()
        self.seconds = 1000.0
        self.leads = True
        self._version = 0
        self.restart()
        self.put_domain(domain_json(**metadata))
        if template:
            self.api.create(TEMPLATES, template_json())

    def restart(self) -> None:
        """Let a new leader start, without what the old one remembered; its watch of pods is still empty."""
        self.watcher, self.status = status_controller(
            leading(self.api, lambda: self.leads),
            pacing=WritePacing(clock=lambda: self.seconds),
            now=lambda: f"2026-02-01T00:{int(self.seconds) // 60 % 60:02}:{int(self.seconds) % 60:02}Z",
        )

    def put_domain(self, value: Json) -> None:
        """Create or replace the ComputeDomain, as a restore or NVIDIA's controller would."""
        self.api.put(DOMAINS, value)

    def change_domain(self, **fields: Any) -> None:  # noqa: ANN401 -- JSON
        """Merge metadata or status into the ComputeDomain."""
        old = self.api.get(DOMAINS, NAME, NAMESPACE)
        self.put_domain({**old, **{key: {**old.get(key, {}), **value} for key, value in fields.items()}})

    def put(self, *pods: Json) -> None:
        """Let the watch of pods report a new or changed pod."""
        for pod in pods:
            self._apply(Change.MODIFIED, pod)

    def remove(self, *pods: Json) -> None:
        for pod in pods:
            self._apply(Change.DELETED, pod)

    def reconcile(self, after: float = 0.0) -> float | None:
        """Pass some time and reconcile the domain."""
        self.seconds += after
        for reflector in (self.watcher.domains, self.watcher.templates):
            reflector._list()
        return self.status.reconcile((NAMESPACE, NAME))

    def mark(self, resource: Resource[Json] = DOMAINS) -> tuple[str | None, str | None]:
        """The annotations pods-using and used-by."""
        found = self.api._objects[(resource.plural, NAMESPACE, NAME)]["metadata"].get("annotations", {})
        return found.get("gkm.io/pods-using"), found.get("gkm.io/used-by")

    def condition(self) -> MNNVLReadiness | None:
        found = self.api._objects.get(("computedomains", NAMESPACE, NAME))
        return parse_readiness(found["metadata"].get("annotations", {}).get(MNNVL_READY)) if found else None

    def writes(self) -> list[str]:
        """The kinds that were written since the last call, but events."""
        found = [plural for verb, plural, _ in self.api.calls if verb in {"merge", "apply"}]
        self.api.calls.clear()
        return found

    def events(self) -> list[Json]:
        return self.api.stored("events")

    def _apply(self, change: Change, pod: Json) -> None:
        self._version += 1
        watch = self.status.observer.pods.watch
        watch._shared.add(watch)
        reflector, value = reflector_of(watch), read(WatchedPod, pod)
        entry = ObjectEntry(value.key[0], value.key[1], str(self._version), value)
        reflector._apply(WatchEvent(change, str(self._version), entry))


class RunningStatus:
    """A controller whose watches and queue run, beside reflectors as the other half of the controller has them."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.watches = WatchSet()
        self.watcher, self.status = status_controller(self.api, pacing=WritePacing(interval=0.05, figures=0.05))

    def start(self) -> None:
        self.status.observer.follow_nodes()
        self.watches.start(*self.watcher.reflectors(sets=False), *self.status.observer.reflectors(grove=True))
        until(lambda: self.watches.synced, "the lists")
        self.status.queue.start()

    def close(self) -> None:
        self.status.queue.close(3.0)
        self.watches.close(1.0)

    def annotation(self, key: str) -> str:
        found = self.api._objects.get(("computedomains", "team", NAME))
        return str(found["metadata"].get("annotations", {}).get(key, "")) if found else ""

    def until(self, reason: str) -> None:
        until(lambda: f'"reason":"{reason}"' in self.annotation("gkm.io/mnnvl-ready"), f"the reason {reason}")

    def store(self, resource: Resource[Any], value: Json) -> None:
        self.api.put(resource, value)
