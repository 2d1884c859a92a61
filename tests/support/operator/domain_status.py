"""The status controller of ComputeDomains without threads: a test makes each change, passes time, and reconciles."""

from collections.abc import Sequence
from typing import Any

from gkm.api.computedomains import ComputeDomain
from gkm.api.config import Config
from gkm.api.domain_readiness import MNNVLReadiness, parse_readiness
from gkm.api.meta import Condition
from gkm.api.mnnvl_metadata import MNNVL_READY
from gkm.api.resource_claims import ResourceClaimTemplate
from gkm.kube.api import Change, ObjectEntry, WatchEvent
from gkm.kube.resources import CLAIM_TEMPLATES, COMPUTEDOMAINS, Resource
from gkm_operator.computedomains.status_controller import DomainStatusController
from gkm_operator.computedomains.write_pacing import WritePacing
from support.grove.objects import NAMESPACE
from support.grove.observed import NAME, UID, Json, domain_json, read, template_json
from support.kube.fake_api import FakeApi

RAW_DOMAINS: Resource[Json] = Resource(COMPUTEDOMAINS.api_version, "ComputeDomain", "computedomains", True, dict)  # noqa: FBT003
RAW_TEMPLATES: Resource[Json] = Resource(
    CLAIM_TEMPLATES.api_version, "ResourceClaimTemplate", "resourceclaimtemplates", namespaced=True, type=dict
)


class Source:
    """The domains and claim templates in the API, without the delay of a watch."""

    def __init__(self, api: FakeApi) -> None:
        self._api = api

    def domain(self, namespace: str, name: str) -> ComputeDomain | None:
        return next((found for found in self._listed(COMPUTEDOMAINS, namespace) if found.metadata.name == name), None)

    def template(self, namespace: str, name: str) -> ResourceClaimTemplate | None:
        return next((found for found in self._listed(CLAIM_TEMPLATES, namespace) if found.metadata.name == name), None)

    def domains_with_template(self, namespace: str, template: str) -> Sequence[ComputeDomain]:
        return [found for found in self._listed(COMPUTEDOMAINS, namespace) if found.template == template]

    def _listed(self, resource: Resource[Any], namespace: str) -> list[Any]:
        calls = list(self._api.calls)
        try:
            entries = [entry for page in self._api.list_pages(resource) for entry in page.entries]
        finally:
            # The reads of a test are no requests of the controller.
            self._api.calls[:] = calls
        return [entry.value for entry in entries if entry.namespace == namespace]


class StatusScene:
    """A namespace with a ComputeDomain, a clock that stands still, and a controller whose queue does not run."""

    def __init__(self, *, template: bool = True, **metadata: Any) -> None:  # noqa: ANN401 -- JSON
        self.api = FakeApi()
        self.seconds = 1000.0
        self.leads = True
        self.source = Source(self.api)
        self._version = 0
        self.restart()
        self.put_domain(domain_json(**metadata))
        if template:
            self.api.create(RAW_TEMPLATES, template_json())

    def restart(self) -> None:
        """Let a new leader start, without what the old one remembered; its watch of pods is still empty."""
        self._seen: ComputeDomain | None = None
        self.status = DomainStatusController(
            self.api,
            Config(),
            self.source,
            namespace="gkm-system",
            instance="test",
            conditions=self.conditions,
            leads=lambda: self.leads,
            pacing=WritePacing(clock=lambda: self.seconds),
            now=lambda: f"2026-02-01T00:{int(self.seconds) // 60 % 60:02}:{int(self.seconds) % 60:02}Z",
        )

    def conditions(self) -> Sequence[Condition]:
        return ()

    def put_domain(self, value: Json) -> None:
        """Create or replace the ComputeDomain, as a restore or NVIDIA's controller would."""
        key = ("computedomains", NAMESPACE, value["metadata"]["name"])
        self.api._store(COMPUTEDOMAINS, key, self.api._objects.get(key), value)

    def change_domain(self, **fields: Any) -> None:  # noqa: ANN401 -- JSON
        """Merge metadata or status into the ComputeDomain."""
        old = self.api.get(RAW_DOMAINS, NAME, NAMESPACE)
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
        domain = self.source.domain(NAMESPACE, NAME)
        if domain != self._seen:
            self.status.observer._by_uid.change(self._seen, domain)
            self._seen = domain
        return self.status.reconcile((NAMESPACE, NAME))

    def mark(self, resource: Resource[Json] = RAW_DOMAINS) -> tuple[str | None, str | None]:
        """The annotations pods-using and used-by."""
        found = self.api._objects[(resource.plural, NAMESPACE, NAME)]["metadata"].get("annotations", {})
        return found.get("gkm.io/pods-using"), found.get("gkm.io/used-by")

    def condition(self) -> MNNVLReadiness | None:
        found = self.source.domain(NAMESPACE, NAME)
        return parse_readiness(found.metadata.annotation(MNNVL_READY)) if found else None

    def writes(self) -> list[str]:
        """The kinds that were written since the last call, but events."""
        found = [plural for verb, plural, _ in self.api.calls if verb in {"merge", "apply"}]
        self.api.calls.clear()
        return found

    def events(self) -> list[Json]:
        return [value for key, value in sorted(self.api._objects.items()) if key[0] == "events"]

    def _apply(self, change: Change, pod: Json) -> None:
        self._version += 1
        reflector = self.status.observer.pods.reflector
        value = read(reflector.resource.type, pod)
        entry = ObjectEntry(value.key[0], value.key[1], str(self._version), value)
        reflector._apply(WatchEvent(change, str(self._version), entry))


__all__ = ["NAME", "NAMESPACE", "UID", "StatusScene"]
