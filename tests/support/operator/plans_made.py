"""Runs, plans and pods as the controller reads them, without an API."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from gkm.api.meta import timestamp
from gkm.api.topology_settings import Packing, Topology
from gkm.packing.conversion import request
from gkm.packing.usable_nodes import usable_nodes
from gkm.packing.values import Location, Node
from gkm.topology.eligibility import NodeDemand
from gkm.topology.nodes import Node as TopologyNode
from gkm.topology.survey import TopologySurvey, survey_nodes
from gkm.topology.usage import Usage
from gkm_operator.plans.planning.draft import FoundPlan, PlanDraft, PlanOccasion, find_plan, make_draft
from gkm_operator.plans.state.free_capacity import FreeGpus
from gkm_operator.plans.state.objects import PlanRecord, WatchedRun
from gkm_operator.pods import WatchedPod
from support.operator.plans import gpu_node, gpu_pod, run

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
Json = dict[str, Any]


def a_run(
    name: str = "r",
    gpus: int = 32,
    namespace: str = "team",
    *,
    annotations: Mapping[str, str] | None = None,
    **rest: Any,  # noqa: ANN401 -- JSON
) -> WatchedRun:
    """Return a Run; arguments with the name of a metadata field set that field."""
    known = ("deletionTimestamp", "creationTimestamp", "generation", "uid", "resourceVersion")
    meta = {"uid": f"uid-{name}", "generation": 1} | {key: rest.pop(key) for key in known if key in rest}
    whole = run(name, gpus, namespace, **({"groupGPUs": 16} | rest))
    whole["metadata"] |= meta | {"annotations": dict(annotations or {})}
    return msgspec.convert(whole, WatchedRun)


def a_survey(*nodes: Json, settings: Topology | None = None) -> TopologySurvey:
    """Return the survey of some Nodes."""
    return survey_nodes((msgspec.convert(node, TopologyNode) for node in nodes), settings or Topology())


def fleet(domains: int = 2, nodes: int = 2) -> list[Json]:
    """Return Nodes d<i>-n<j> of eight GPUs."""
    return [gpu_node(f"d{domain}-n{number}", f"d{domain}") for domain in range(domains) for number in range(nodes)]


def a_stock(*nodes: Json, free: Mapping[str, int] | None = None) -> FreeGpus:
    """Return what a run of h100s may use."""
    taken = Usage({name: 8 - count for name, count in (free or {}).items()})
    return FreeGpus.of(usable_nodes(a_survey(*nodes), taken, NodeDemand("h100")))


def a_draft(
    one: WatchedRun, stock: FreeGpus, *, number: int = 1, former: PlanRecord | None = None, why: str = ""
) -> PlanDraft:
    """Return the plan of a run."""
    asked_for = request(one.spec, one.spec.policy or "fewest-domains")
    found = find_plan(stock, asked_for, former.groups if former else ())
    assert isinstance(found, FoundPlan)
    made = make_draft(one, found, stock, Packing(), PlanOccasion(number, NOW, why, former))
    assert isinstance(made, PlanDraft)
    return made


def a_plan(
    *,
    asked: str | None = None,
    again: str = "",
    expires: datetime | None = None,
    generation: int = 1,
    one: WatchedRun | None = None,
    stock: FreeGpus | None = None,
    number: int = 1,
    created: str = "",
) -> PlanRecord:
    """Return a plan of a run of 32 GPUs on two domains, as it counts."""
    one = one or a_run()
    made = a_draft(one, stock or a_stock(*fleet()), number=number).counts
    spec = msgspec.structs.replace(
        made.spec, run_generation=generation, expires_at=timestamp(expires) if expires else None
    )
    return PlanRecord(
        made.name, made.run, made.owner or one.metadata.uid, number, created,
        one.request_hash if asked is None else asked, again, expires, spec, made.groups, made.claims,
    )  # fmt: skip


def a_pod(name: str, node: str, gpus: int, of: str = "", namespace: str = "team", **parts: Any) -> WatchedPod:  # noqa: ANN401 -- JSON
    """Return a pod as it is read."""
    text = msgspec.json.encode(gpu_pod(name, node, gpus, of, namespace) | parts)
    return msgspec.json.decode(text, type=WatchedPod)


def irregular(count: int) -> Sequence[Node]:
    """Return nodes whose names have no numbers that follow one another."""
    names = (f"{(number * 2654435761) % (1 << 32):08x}-worker" for number in range(count))
    return [Node(name, Location("r", "c", f"b{at // 512}", f"d{at // 16}"), 8, 8) for at, name in enumerate(names)]
