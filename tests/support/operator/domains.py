"""The controller of ComputeDomains in steps, on an API in memory with stand-ins for what else acts on domains.

Nothing runs by itself: a test lets a process observe the API and reconcile what it then has to do.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from gkm.api.network_settings import Network
from gkm.kube import resources
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.events import Recorder
from gkm.kube.informers import Informers
from gkm.kube.resources import CLAIM_TEMPLATES, COMPUTEDOMAINS, EVENTS, PODCLIQUESETS, Json, Resource
from gkm.kube.workqueue import Retry
from gkm_operator.computedomains.controller import WorkloadReconciler
from gkm_operator.computedomains.objects import Workload
from gkm_operator.computedomains.pacing import WritePacing
from gkm_operator.computedomains.presence import Presence
from gkm_operator.computedomains.watcher import DomainPods, DomainWatcher
from gkm_operator.mnnvl.gpu_requests import GPURequests
from support.grove.objects import NAMESPACE, claim_template, clique, pod_clique_set
from support.kube.fake_api import FakeApi
from support.kube.leading import leading
from support.kube.listing import list_now
from support.operator.plans import PODS, everything, gpu_pod

AUTO, GROUP = "grove.io/auto-mnnvl", "grove.io/mnnvl-group"
ENROLLED = {AUTO: "enabled"}
ON, OFF = Network(auto_mnnvl_enabled=True), Network()
NVIDIA = "resource.nvidia.com/computeDomain"
"""NVIDIA's finalizer, and its label with the uid of a domain."""
MARK = "gkm.io/pods-using"
OURS = "grove.io/computedomain-finalizer"
CHANNEL = "compute-domain-default-channel.nvidia.com"


def raw(resource: Resource[Any]) -> Resource[Json]:
    """The kind as JSON."""
    return Resource(resource.api_version, resource.kind, resource.plural, namespaced=True, type=Json)


SETS, DOMAINS, TEMPLATES = raw(PODCLIQUESETS), raw(COMPUTEDOMAINS), raw(CLAIM_TEMPLATES)
CLAIMS = raw(resources.CLAIMS)


DELETED = datetime(2026, 1, 1, tzinfo=UTC)
"""When all objects of FakeApi are deleted that have finalizers; the clocks of processes begin then."""
SOON = 10.0
"""Seconds that `settle` lets pass for what a process wants to do later."""


class Process:
    """One leader: its caches of `api`, and the workloads that it has to reconcile; `sends` gets its other requests.

    Its clock stands still until a test lets time pass.
    """

    def __init__(
        self, api: Api, network: Network | None = None, presence: Presence | None = None, sends: Api | None = None
    ) -> None:
        settings = network or ON
        self.leads: Callable[[], bool] = lambda: True
        self.seconds = 0.0
        self.keys = set[Workload]()
        self._later: dict[Workload, float] = {}
        self.watcher = DomainWatcher(api)
        self.pods = DomainPods(Informers(api), GPURequests(settings))
        leader = leading(sends or api, lambda: self.leads())  # noqa: PLW0108 -- a test sets it later
        recorder = Recorder(leader, "gkm.io/computedomains", "test")
        self.reconciler = WorkloadReconciler(
            leader,
            self.watcher,
            self.pods,
            recorder,
            settings=settings,
            enqueue=lambda workload, _after: self.keys.add(workload),
            pacing=WritePacing(clock=self._clock),
            clock=self._clock,
            now=lambda: DELETED + timedelta(seconds=self.seconds),
        )
        self.reconciler.presence = presence or Presence(available=True, sets=True)

    def _clock(self) -> float:
        return self.seconds

    def pass_time(self, seconds: float) -> None:
        """Let time pass; what is due then is reconciled by the next `work`."""
        self.seconds += seconds
        due = {key for key, when in self._later.items() if when <= self.seconds}
        self.keys |= due
        for key in due:
            del self._later[key]

    def wait(self, seconds: float) -> bool:
        """Let time pass until something is due; return False if nothing is within so many seconds."""
        first = min(self._later.values(), default=float("inf"))
        if first > self.seconds + seconds:
            return False
        self.seconds = max(first, self.seconds)
        self.pass_time(0.0)
        return True

    def observe(self, *kinds: str) -> None:
        """List these kinds, by default all."""
        watcher = self.watcher
        for reflector in (watcher.sets, watcher.domains, watcher.templates, self.pods.watch):
            if not kinds or reflector.resource.plural in kinds:
                list_now(reflector)

    def work(self) -> list[Exception]:
        """Reconcile every waiting workload once; return the errors, whose workloads wait again."""
        keys = sorted(self.keys)
        errors: list[Exception] = []
        self.keys.clear()
        for key in keys:
            self._later.pop(key, None)
            try:
                after = self.reconciler.reconcile(key)
                if after is not None:
                    self._later[key] = self.seconds + after
            except (ApiError, Retry) as error:
                self.keys.add(key)
                errors.append(error)
        return errors


class World:
    """Objects of users, and what NVIDIA's controller and the garbage collector do about them."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.nvidia_runs = True

    def create_set(self, *words: Any, annotations: Mapping[str, str] | None = None, **more: Any) -> str:  # noqa: ANN401 -- those of the builder
        """Create a PodCliqueSet, enrolled unless annotations say otherwise; return its uid."""
        made = pod_clique_set(*words, annotations=ENROLLED if annotations is None else annotations, **more)
        return str(self.api.create(SETS, made)["metadata"]["uid"])

    def scale(self, replicas: int, name: str = "test-pcs") -> None:
        self.api.merge(SETS, name, {"spec": {"replicas": replicas}}, NAMESPACE)

    def delete_set(self, name: str = "test-pcs") -> None:
        self.api.delete(SETS, name, NAMESPACE)

    def use(self, domain: str, pods: int) -> None:
        """Mark a domain and its template as the controllers do for pods that use them."""
        marks = {"metadata": {"annotations": {MARK: str(pods), "gkm.io/used-by": "a, b" if pods else None}}}
        for resource in (TEMPLATES, DOMAINS):
            with suppress(ApiError):
                self.api.merge(resource, domain, marks, NAMESPACE)

    def settle(self, *processes: Process, rounds: int = 60) -> None:
        """Let everything act in turns until nothing changes; what waits for something else may wait."""
        for _ in range(rounds):
            before = self.api._version
            self.act()
            errors: list[Exception] = []
            for process in processes:
                process.observe()
                errors += process.work()
            if self.api._version == before and not any(isinstance(error, ApiError) for error in errors):
                waited = [process.wait(SOON) for process in processes]
                if not any(waited):
                    return
        raise AssertionError(f"it does not settle: {errors}")

    def act(self) -> None:
        """Let NVIDIA's controller and the garbage collector act once."""
        if self.nvidia_runs:
            for domain in everything(self.api, DOMAINS):
                self._nvidia(domain)
        uids = {value["metadata"]["uid"] for value in self.api._objects.values()}
        for resource in (DOMAINS, PODS):
            for value in everything(self.api, resource):
                self._collect(resource, value, uids)

    def _nvidia(self, domain: Json) -> None:
        meta, name = domain["metadata"], domain["spec"]["channel"]["resourceClaimTemplate"]["name"]
        finalizers = meta.get("finalizers", [])
        if "deletionTimestamp" in meta:
            for template in everything(self.api, TEMPLATES):
                if template["metadata"].get("labels", {}).get(NVIDIA) == meta["uid"]:
                    if template["metadata"].get("annotations", {}).get(MARK, "0") != "0":
                        return  # the policy refuses its deletion, and NVIDIA's controller stops there
                    self.api.delete(TEMPLATES, name, meta["namespace"])
            if NVIDIA in finalizers:
                rest = [one for one in finalizers if one != NVIDIA]
                self.api.merge(DOMAINS, meta["name"], {"metadata": {"finalizers": rest or None}}, meta["namespace"])
            return
        if NVIDIA not in finalizers:
            patch = {"metadata": {"finalizers": [*finalizers, NVIDIA]}}
            self.api.merge(DOMAINS, meta["name"], patch, meta["namespace"])
        if ("resourceclaimtemplates", meta["namespace"], name) not in self.api._objects:
            made = claim_template(name, CHANNEL, namespace=meta["namespace"], labels={NVIDIA: meta["uid"]})
            self.api.create(TEMPLATES, made)

    def _collect(self, resource: Resource[Json], value: Json, uids: set[str]) -> None:
        """Delete an object whose owners are all gone; take the gone ones from another's owners."""
        meta = value["metadata"]
        owners = meta.get("ownerReferences", [])
        living = [owner for owner in owners if owner["uid"] in uids]
        if owners and not living and "deletionTimestamp" not in meta:
            self.api.delete(resource, meta["name"], meta["namespace"], uid=meta["uid"])
        elif living and living != owners:
            self.api.merge(resource, meta["name"], {"metadata": {"ownerReferences": living}}, meta["namespace"])

    def domains(self) -> list[str]:
        """The names of all ComputeDomains."""
        return sorted(domain["metadata"]["name"] for domain in everything(self.api, DOMAINS))

    def pod(
        self,
        name: str,
        label: str,
        gpus: int = 8,
        owners: Sequence[Json] = (),
        labels: Mapping[str, str] | None = None,
        *,
        namespace: str = NAMESPACE,
    ) -> str:
        """Create a pod that names a ComputeDomain by the label; return its uid."""
        made = gpu_pod(name, "", gpus, namespace=namespace)
        made["metadata"]["labels"] = {"gkm.io/compute-domain": label} | dict(labels or {})
        made["metadata"]["ownerReferences"] = list(owners)
        return str(self.api.create(PODS, made)["metadata"]["uid"])

    def controller(self, kind: str, name: str, above: Sequence[Json] = ()) -> Json:
        """Create an object that controls pods, such as "batch/v1 Job"; return the reference to it."""
        resource = self.kind(kind)
        head = {"apiVersion": resource.api_version, "kind": resource.kind}
        meta = {"name": name, "namespace": NAMESPACE, "ownerReferences": list(above)}
        made = self.api.create(resource, head | {"metadata": meta})
        return head | {"name": name, "uid": made["metadata"]["uid"], "controller": True}

    def kind(self, words: str) -> Resource[Json]:
        """The kind of an "apiVersion Kind"."""
        version, _, kind = words.partition(" ")
        return Resource(version, kind, f"{kind.lower()}s", namespaced=True, type=Json)

    def made(self) -> list[Json]:
        """The ComputeDomains that GKM made."""
        labeled = ((one, one["metadata"].get("labels", {})) for one in everything(self.api, DOMAINS))
        return [one for one, labels in labeled if labels.get("gkm.io/written-by") == "gkm"]

    def domain(self, name: str) -> Json:
        return self.api.get(DOMAINS, name, NAMESPACE)

    def events(self) -> list[tuple[str, str, str, str]]:
        """Object, type, reason and note of every event."""
        return sorted(
            (event["regarding"]["name"], event["type"], event["reason"], event["note"])
            for event in everything(self.api, EVENTS)
        )

    def writes(self) -> list[tuple[str, str, str]]:
        """The writes so far that are not about events."""
        return [call for call in self.api.calls if call[0] in {"create", "merge", "delete"} and call[1] != "events"]


def grouped(*groups: str) -> list[Json]:
    """One clique with GPUs for each group."""
    return [clique(f"c-{group}", annotations={GROUP: group}) for group in groups]


def resource_claim(name: str, device_class: str) -> Json:
    """A ResourceClaim that requests one device of a class."""
    template = claim_template(name, device_class)
    return template | {"kind": "ResourceClaim", "spec": template["spec"]["spec"]}


def owners(world: World, name: str = "train") -> list[tuple[str, str]]:
    """Kind and name of the owners of a domain."""
    return [(owner["kind"], owner["name"]) for owner in world.domain(name)["metadata"]["ownerReferences"]]
