"""Pods of runs and plans as the decisions about gates read them, and the controllers that plan and remove gates."""

from datetime import UTC, datetime, timedelta

from gkm.api.config import Config
from gkm.api.meta import timestamp
from gkm.api.plans import PlanMetrics, PlanRequest, PlanSpec
from gkm.api.topology_settings import Packing
from gkm.kube.api import Api
from gkm.kube.controller import close_watches, stop_all
from gkm.kube.informers import Informers
from gkm.packing.values import Group, Location, Share
from gkm_operator.plans.controller import PlansController
from gkm_operator.plans.gates.controller import GatesController
from gkm_operator.plans.gates.slots import PlacedPod
from gkm_operator.plans.state.node_loss import GracePeriod
from gkm_operator.plans.state.objects import PlanRecord, RunKey, claims_of
from gkm_operator.pods import RunPod
from support.kube.leading import leading

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
GPUS_PER_POD = 4
_DIGEST = "0" * 64


def gated(
    name: str,
    *rank: int,
    node: str = "",
    bound: bool = False,
    terminating: bool = False,
    blocked: bool = False,
    gated_: bool = True,
    hostname: str = "",
    age: float = 0,
    unbound: str = "",
) -> PlacedPod:
    """A pod of a run with these numbers; with a gate, unless it is bound."""
    created = timestamp(NOW - timedelta(seconds=age))
    facts = RunPod(f"uid-{name}", "1", created, rank, terminating, gated_ and not bound, blocked, hostname, unbound)
    return PlacedPod(name, facts, node, bound)


def group(index: int, *nodes: str) -> Group:
    """A group with one pod on each node."""
    place = Location("r", "c", "b", f"d{index}")
    return Group(index, GPUS_PER_POD * len(nodes), place, "", tuple(Share(node, GPUS_PER_POD) for node in nodes))


def plan_of(*groups: Group) -> PlanRecord:
    """A stored plan that does not expire."""
    gpus = sum(each.gpus for each in groups)
    request = PlanRequest(gpus, GPUS_PER_POD, group_gpus=groups[0].gpus)
    metrics = PlanMetrics(
        domains=1, lower_bound=1, gap=0, stranded_gpus=0, blocks=1, pristine_domains=0, spares_elsewhere=0
    )
    spec = PlanSpec(_DIGEST, _DIGEST, "fewest-domains", "gpu", gpus, request, [], metrics)
    return PlanRecord("r-1", RunKey("n", "r"), "u", 1, "", "", "", None, spec, groups, claims_of(groups), "7")


class ControllersProcess:
    """The controllers that plan and that remove gates, on one API."""

    def __init__(self, api: Api) -> None:
        leader, informers = leading(api, lambda: True), Informers(api)
        packing = Packing(pod_gates=True)
        gates = self.gates = GatesController(leader, packing, informers=informers, calm=0.001)
        plans = self.plans = PlansController(
            leader,
            Config(packing=packing),
            calm=0.001,
            pause=0.001,
            grace=GracePeriod(0.0),
            informers=informers,
            pods=gates.report,
        )
        gates.follow(plans.watcher, plans.wake)
        self._all = (plans, gates)

    def work(self) -> None:
        for controller in self._all:
            controller.work()

    def close(self) -> None:
        stop_all(self._all)
        close_watches(self._all)
