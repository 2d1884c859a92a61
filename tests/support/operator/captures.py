"""A cluster in memory whose nodes announce captures, and the controllers that register them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from gkm.api.config import Capture, CapturedCaches, CaptureSigning, Config
from gkm.api.errors import GKMError, Reason
from gkm.api.meta import timestamp
from gkm.api.nodes import CapturedImage
from gkm.images.captured.content import cache_name, member_name
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.resources import (
    CLUSTERGKMCACHES,
    EVENTS,
    GKMCACHENODES,
    GKMCACHES,
    WATCHED_CACHES,
    WATCHED_CLUSTER_CACHES,
    Json,
    Resource,
)
from gkm_operator.caches.node_reports import REPORTS
from gkm_operator.captures.controller import CapturesController
from gkm_operator.captures.objects import Announcement
from msgspec import structs, to_builtins
from support.kube.fake_api import FakeApi
from support.kube.interposed_api import Around, Call, InterposedApi
from support.kube.leading import leading

REGISTRY = "registry.test/captured"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAMESPACE = "ml-apps"


def digest(number: int) -> str:
    return f"sha256:{number:064x}"


def captured(number: int = 1, *, namespace: str = NAMESPACE, age: float = 0.0, **changes: Any) -> CapturedImage:  # noqa: ANN401 -- any field
    """Return what an agent announces of a capture; `age` in seconds."""
    content = f"sha256:{number:012x}{'c' * 52}"
    honest = CapturedImage(
        volume=f"csi-{number}",
        state="Announced",
        pod="trainer-0",
        time=timestamp(NOW - timedelta(seconds=age)),
        name=cache_name("triton", "sm_90", content),
        image=f"{REGISTRY}/{namespace}/triton@{digest(number)}",
        runtime="triton",
        version="3.4.0+cu128",
        backend="cuda",
        arch="sm_90",
        driver="570.86.15",
        content_digest=content,
    )
    return structs.replace(honest, **changes)


def of_family(number: int, family: str = "llama", *, base: int = 0, **changes: Any) -> CapturedImage:  # noqa: ANN401 -- any field
    """Return what an agent announces of a capture of a family; `base` is the number of the capture that it extends."""
    return reported_as(captured(number, **changes), family, digest(base) if base else "")


def reported_as(capture: CapturedImage, family: str, base: str = "") -> CapturedImage:
    """Return a capture as one of a family."""
    name = member_name(family, capture.arch, capture.content_digest or "")
    return structs.replace(capture, family=family, base=base or None, name=name)


def name_of(number: int) -> str:
    return captured(number).name


@dataclass
class FakeCapturedImages:
    """Proves every announcement but those with an error."""

    errors: dict[str, GKMError] = field(default_factory=dict)
    """By image: why it proves nothing."""
    times: dict[str, datetime] = field(default_factory=dict)
    """By image: the signed time, where it is not the announced one."""
    claims_refused: set[tuple[str, str, str]] = field(default_factory=set)
    """Image, family and base of claims that no statement names."""
    proofs: list[tuple[str, bool]] = field(default_factory=list)

    def prove(self, announced: Announcement, now: datetime, *, cluster: bool) -> datetime:
        self.proofs.append((announced.image, cluster))
        if announced.image in self.errors:
            raise self.errors[announced.image]
        if (announced.image, announced.family, announced.base) in self.claims_refused:
            raise GKMError(Reason.SIGNATURE_MISSING, "no trusted statement names this family and this base")
        assert now.tzinfo is not None
        return self.times.get(announced.image, announced.time)


@dataclass
class CapturesWorld:
    """The cluster; `settings` are those of `capture.caches`."""

    settings: CapturedCaches = field(default_factory=CapturedCaches)
    api: FakeApi = field(default_factory=FakeApi)
    images: FakeCapturedImages = field(default_factory=FakeCapturedImages)
    now: datetime = NOW
    leads: bool = True

    @property
    def config(self) -> Config:
        signing = CaptureSigning(key_file="/key")
        return Config(capture=Capture(registry=REGISTRY, signing=signing, caches=self.settings))

    def announce(self, node: str, *captures: CapturedImage, namespace: str = NAMESPACE) -> None:
        """Write the status of a node object, as its agent does."""
        value = {
            "apiVersion": "gkm.io/v1alpha1",
            "kind": "GKMCacheNode",
            "metadata": {"name": node, "namespace": namespace},
            "spec": {"nodeName": node},
            "status": {"captures": [to_builtins(each) for each in captures]},
        }
        self.api.apply(GKMCACHENODES, value, field_manager="agent")
        self.api.apply(GKMCACHENODES, value, field_manager="agent", subresource="status")

    def use(self, name: str, pods: int, namespace: str = NAMESPACE) -> None:
        self.api.merge(GKMCACHES, name, {"status": {"podsUsing": pods}}, namespace, subresource="status")

    def own(self, name: str, image: str, namespace: str = NAMESPACE, **spec: object) -> None:
        """Make a cache as a user does."""
        value = {
            "apiVersion": "gkm.io/v1alpha1",
            "kind": "GKMCache",
            "metadata": {"name": name, "namespace": namespace},
        }
        self.api.create(GKMCACHES, value | {"spec": {"image": image, **spec}})

    def verify(self, name: str, status: str = "True", namespace: str = NAMESPACE) -> None:
        """Write the verdict on the signatures of a cache, as the controller of caches does."""
        image = self.api.get(GKMCACHES, name, namespace).spec.image
        verdict = {"type": "Verified", "status": status, "reason": "x", "message": "", "lastTransitionTime": ""}
        patch = {"status": {"image": image, "resolvedDigest": image.partition("@")[2], "conditions": [verdict]}}
        self.api.merge(GKMCACHES, name, patch, namespace, subresource="status")

    def generations(self, family: str = "llama", resource: Resource[Any] = GKMCACHES) -> dict[str, int]:
        """Return the number of each generation of a family by the name of its object."""
        found = [each for each in self.caches(resource) if each["spec"].get("family") == family]
        return {each["metadata"]["name"]: each["spec"]["generation"] for each in found}

    def caches(self, resource: Resource[Any] = GKMCACHES) -> list[Json]:
        return list(listed(self.api, resource.of(dict)))

    def names(self, resource: Resource[Any] = GKMCACHES) -> list[str]:
        return sorted(each["metadata"]["name"] for each in self.caches(resource))

    def events(self) -> list[tuple[str, str]]:
        """Return the reason of each event with the name of its object."""
        return sorted((each["reason"], each["regarding"]["name"]) for each in listed(self.api, EVENTS))

    def notes(self, reason: str) -> list[str]:
        return [each["note"] for each in listed(self.api, EVENTS) if each["reason"] == reason]


def listed(api: Api, resource: Resource[Any]) -> Iterator[Any]:
    for page in api.list_pages(resource):
        yield from (entry.value for entry in page.entries)


class CapturesProcess:
    """One process of the controllers: its passes are run by the test, after its watches have shown what is there.

    `around` gets every request.
    """

    def __init__(self, world: CapturesWorld, around: Around | None = None, backoff: Any = None) -> None:  # noqa: ANN401
        def send(_call: Call, request: Any) -> Any:  # noqa: ANN401 -- any answer
            return request()

        self._world = world
        self.seconds = 0.0
        self.refreshed: list[object] = []
        api = leading(InterposedApi(world.api, around or send), lambda: world.leads)
        options = {} if backoff is None else {"backoff": backoff}
        self.controller = CapturesController(
            api,
            world.config,
            world.images.prove,
            now=lambda: world.now,
            clock=lambda: self.seconds,
            **options,
        )
        self.controller.refresh = self.refreshed.append
        self._seen: dict[tuple[str, str, str], Any] = {}
        self._namespaces: set[str] = set()
        self.observe()

    def observe(self) -> None:
        """Let the watches deliver what is there now."""
        api = self._world.api
        for resource, changed in (
            (REPORTS, self.controller.observed.report_changed),
            (WATCHED_CACHES, self.controller.observed.cache_changed),
            (WATCHED_CLUSTER_CACHES, self.controller.observed.cache_changed),
        ):
            found = {(resource.plural, v.metadata.namespace, v.metadata.name): v for v in listed(api, resource)}
            for key in [key for key in self._seen if key[0] == resource.plural and key not in found]:
                changed(self._seen.pop(key), None)
            for key, value in found.items():
                changed(self._seen.get(key), value)
                self._seen[key] = value

    def run(self, passes: int = 6) -> None:
        """Run passes over all namespaces, as the queue does; a failed one is repeated by the next."""
        for _ in range(passes):
            self.observe()
            # A change enqueues its namespace, also that of the last capture.
            self._namespaces.update(self.controller.observed.namespaces())
            for namespace in sorted(self._namespaces):
                try:
                    self.controller.reconciler.reconcile(namespace)
                except Exception as error:  # noqa: BLE001 -- the queue would log it
                    self.last_error = error
        self.observe()

    def condition(self, name: str, namespace: str | None = NAMESPACE, kind: str = "Retained") -> tuple[str, str] | None:
        """Return status and reason of a condition of a cache."""
        resource: Resource[Any] = GKMCACHES if namespace else CLUSTERGKMCACHES
        found = self.controller.conditions(self._world.api.get(resource, name, namespace))
        return next(((each.status, each.reason) for each in found if each.kind == kind), None)


def lost(_call: Call) -> ApiError:
    return ApiError(504, "Timeout", "the answer was lost")
