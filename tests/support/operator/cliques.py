"""The built-in controllers run step by step over an API in memory, and what a set requires, computed anew."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from gkm.api.config import Config, Grove
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.resources import Resource
from gkm.kube.workqueue import Retry
from gkm_operator.cliques.controller import CliquesController, ParentKey
from support.grove import desired
from support.grove.driver import CLIQUES, GROUPS, PODS, SERVICES, SETS
from support.grove.objects import NAMESPACE, clique, pod_clique_set, scaling_group
from support.kube.fake_api import FakeApi, Key
from support.kube.garbage import collect_garbage
from support.kube.interposed_api import Call, InterposedApi, Killed

T = TypeVar("T")
Json = dict[str, Any]
ON = Config(grove=Grove(built_in_controllers=True))
KINDS: tuple[Resource[Json], ...] = (SETS, GROUPS, CLIQUES, PODS, SERVICES)
WEBHOOKS: Resource[Json] = Resource(
    "admissionregistration.k8s.io/v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    namespaced=False,
    type=dict,
)
CLAIM = {"name": "some-claim", "resourceClaimTemplateName": "some-template"}


def a_set(replicas: int = 1) -> Json:
    """A set with a clique of two pods, and a scaling group of two replicas with a leader and two workers."""
    return pod_clique_set(
        "set",
        clique("router", gpus=0, replicas=2),
        clique("leader"),
        clique("worker", replicas=2),
        replicas=replicas,
        scaling_groups=[scaling_group("decode", "leader", "worker", replicas=2)],
    )


class InjectingApi(FakeApi):
    """An API with an admission webhook that adds a claim to every PodClique that is created or changed."""

    def _store(self, resource: Resource[Any], key: Key, old: Json | None, new: Json) -> Json:
        if resource.plural == CLIQUES.plural:
            claims = new["spec"]["podSpec"].setdefault("resourceClaims", [])
            claims.extend([] if CLAIM in claims else [CLAIM])
            for container in new["spec"]["podSpec"]["containers"]:
                used = container["resources"].setdefault("claims", [])
                used.extend([] if {"name": CLAIM["name"]} in used else [{"name": CLAIM["name"]}])
        return super()._store(resource, key, old, new)


class Mortal(InterposedApi):
    """The API of a process that ends before its n-th write, if a number is given."""

    def __init__(self, api: Api, lives: int | None = None) -> None:
        super().__init__(api, self._decide)
        self.lives = lives
        self.writes: list[Call] = []

    def _decide(self, call: Call, send: Callable[[], Any]) -> Any:  # noqa: ANN401 -- any answer
        if call.writes:
            if self.lives is not None and len(self.writes) >= self.lives:
                raise Killed
            self.writes.append(call)
        return send()


class Stepper:
    """One process with the built-in controllers: it observes and reconciles only when a test asks for it."""

    def __init__(self, api: Api, config: Config = ON) -> None:
        self.api = api
        self.controller = CliquesController(api, config, leads=lambda: True, calm=0.0)
        self.retries: list[str] = []

    def observe(self, *plurals: str) -> None:
        """List these kinds, or all: changes since enqueue keys, as those of a watch do."""
        for reflector in self.controller._reflectors:
            if not plurals or reflector.resource.plural in plurals:
                reflector._list()

    def reconcile(self) -> None:
        """Handle every key that is in the queue, once; refused ones remain in it."""
        queue = self.controller.queue
        keys = list(queue._due)
        for key in keys:
            queue.forget(key)
        for key in keys:
            try:
                if self.controller.reconcile(key) is not None:
                    queue.add(key)
            except (Retry, ApiError) as error:
                self.retries.append(str(error))
                queue.add(key)

    def settle(self, passes: int = 40) -> None:
        """Observe and reconcile until nothing is left to do, with a garbage collector beside."""
        fake = self.api if isinstance(self.api, FakeApi) else self.api._api  # type: ignore[attr-defined]
        for _ in range(passes):
            collect_garbage(fake)
            version = fake._version
            self.observe()
            self.reconcile()
            if fake._version == version and not self.controller.queue._due:
                return
        raise AssertionError(f"not settled after {passes} passes: {self.retries[-5:]}, {self.controller.queue._due}")


def observed(api: FakeApi, kind: Resource[Json]) -> dict[str, Json]:
    """Return the objects of a kind by name."""
    return {entry.name: entry.value for page in api.list_pages(kind) for entry in page.entries}


def required_cliques(api: FakeApi) -> dict[str, Json]:
    """Return the PodCliques that sets and scaling groups require, as the player of Grove makes them."""
    found: dict[str, Json] = {}
    sets = {pcs["metadata"]["uid"]: pcs for pcs in observed(api, SETS).values()}
    for pcs in sets.values():
        found |= {one["metadata"]["name"]: one for one in desired.standalone_cliques(pcs)}
    for group in observed(api, GROUPS).values():
        pcs = sets[group["metadata"]["ownerReferences"][0]["uid"]]
        found |= {one["metadata"]["name"]: one for one in desired.group_cliques(pcs, group)}
    return found


def differences(api: FakeApi) -> list[str]:
    """Return how what exists differs from what the sets require; empty when all is as it should be."""
    cliques, required = observed(api, CLIQUES), required_cliques(api)
    found = [f"PodClique {name}" for name in sorted(cliques.keys() ^ required.keys())]
    found += [f"role of PodClique {name}" for name, one in cliques.items() if one["spec"]["roleName"] not in name]
    groups = {one["metadata"]["name"] for pcs in observed(api, SETS).values() for one in desired.scaling_groups(pcs)}
    found += [f"scaling group {name}" for name in sorted(observed(api, GROUPS).keys() ^ groups)]
    pods = observed(api, PODS)
    names = {f"{name}-{index}": name for name, one in cliques.items() for index in range(one["spec"]["replicas"])}
    found += [f"pod {name}" for name in sorted(pods.keys() ^ names.keys())]
    for name in pods.keys() & names.keys():
        if pods[name].get("status", {}).get("phase") in {"Succeeded", "Failed"}:
            found.append(f"pod {name} has ended")
        with suppress(KeyError):
            if _made_from(required[names[name]]["spec"]["podSpec"]) != _made_from(pods[name]["spec"]):
                found.append(f"template of pod {name}")
        if pods[name]["metadata"]["ownerReferences"][0]["uid"] != cliques[names[name]]["metadata"]["uid"]:
            found.append(f"owner of pod {name}")
    return found


def _made_from(pod_spec: Json) -> tuple[str, list[Json]]:
    """Return the image, and the variables that are not Grove's."""
    container = pod_spec["containers"][0]
    return container["image"], [one for one in container.get("env", []) if not one["name"].startswith("GROVE_")]


def set_key(name: str = "set") -> ParentKey:
    return ParentKey("PodCliqueSet", NAMESPACE, name)
