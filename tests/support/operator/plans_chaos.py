"""An API that loses answers and kills who asks, and that counts GPUs given twice whenever a plan is made."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from gkm.kube.api import Api, Object
from gkm.kube.errors import ApiError
from gkm.kube.resources import NODES, PLACEMENTPLANS, Resource
from support.kube.fake_api import FakeApi
from support.kube.interposed_api import Call, InterposedApi, Killed
from support.operator.plans import RAW_PLANS, RAW_RUNS, claims, everything, newest

T = TypeVar("T")


class Witness(FakeApi):
    """Every plan is judged at the moment when it is made."""

    def __init__(self) -> None:
        super().__init__()
        self.twice: list[str] = []
        self.made = 0

    def create(self, resource: Resource[T], value: Object, *, field_manager: str = "") -> T:
        with self._lock:
            found = super().create(resource, value, field_manager=field_manager)
            if resource.plural == PLACEMENTPLANS.plural:
                self.made += 1
                self.twice += judged(self)
            return found


def judged(api: Api) -> list[str]:
    """Say of which nodes the newest plans of the Runs that there are name more GPUs than there are."""
    uids = {run["metadata"]["uid"] for run in everything(api, RAW_RUNS)}
    plans = [plan for plan in everything(api, RAW_PLANS) if plan["metadata"]["ownerReferences"][0]["uid"] in uids]
    total: Counter[str] = Counter()
    for plan in newest(plans).values():
        total += claims(plan)
    there = {node["metadata"]["name"]: int(node["status"]["allocatable"]["nvidia.com/gpu"]) for node in every_node(api)}
    return [f"{node}: {count}" for node, count in total.items() if node in there and count > there[node]]


def every_node(api: Api) -> list[dict[str, Any]]:
    return everything(api, NODES)


class Process(InterposedApi):
    """The API as one process sees it: it may die before or after each write, and answers may be lost."""

    def __init__(self, api: Witness, chance: random.Random, deaths: float, losses: float) -> None:
        super().__init__(api, self._decide)
        self._chance = chance
        self._deaths = deaths
        self._losses = losses
        self.dead = False

    def _decide(self, call: Call, send: Callable[[], Any]) -> Any:  # noqa: ANN401 -- any answer
        if not call.writes:
            return send()
        self._maybe_die()
        fate = self._chance.random()
        if fate < self._losses / 2:
            raise ApiError(0, "Unreachable", "never arrived")
        answer = send()
        self._maybe_die()
        if fate < self._losses:
            raise ApiError(0, "Broken", "the answer was lost")
        return answer

    def _maybe_die(self) -> None:
        if self.dead or self._chance.random() < self._deaths:
            self.dead = True
            raise Killed
