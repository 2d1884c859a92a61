"""Read nodes, trees, pods, plans and runs of a cluster: what `gkm plan` plans with without lists. It never writes.

As in the controllers, the GPUs of a plan are in use until its pods use them or it expires, and the GPUs of the runs to
be planned are free (docs/design/plans.md).
"""

from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gkm.api.topology_settings import Topology
from gkm.kube.api import Api, ListSelector
from gkm.kube.resources import PLACEMENTPLANS, RUNS
from gkm.packing.conversion import PlanUnreadable, gpus_by_node, pod_of
from gkm.topology import pods
from gkm.topology.eligibility import PodDemand, load_of
from gkm.topology.labels import label_placements
from gkm.topology.lists import NodeList
from gkm.topology.providers import LABELS, by_trust
from gkm.topology.survey import survey_nodes
from gkm.topology.trees.merge import Named
from gkm.topology.usage import added, uncounted_notes, with_loads

from gkm_cli.clusters.connection import ClusterConnection
from gkm_cli.clusters.reads import NotServed, pages
from gkm_cli.clusters.topology import Notes, read_trees
from gkm_cli.clusters.usage import HINT, RunName, read_nodes, read_usage
from gkm_cli.plan.snapshot import SurveyedCluster

if TYPE_CHECKING:
    from gkm.api.plans import PlacementPlan


def read(cluster: ClusterConnection, own: Collection[RunName], settings: Topology) -> SurveyedCluster:
    """Return the snapshot of a cluster for planning; the plans and pods of the Runs `own` are treated as free.

    Raises:
        CommandFailed: nodes, pods or plans cannot be read.
    """
    nodes = read_nodes(cluster.api)
    used = read_usage(cluster.api, own)
    sources, notes = _sources(cluster.api, nodes, settings)
    surveyed = survey_nodes(nodes.nodes, settings, nodes.unread, sources)
    reserved = _reserved(cluster.api, own, used.by_run, cluster.now())
    starting = _loads(reserved, _pods(cluster.api) if reserved else {})
    return SurveyedCluster(
        surveyed,
        with_loads(used.others, starting),
        (*uncounted_notes(surveyed.uncounted, used.others.claiming), *notes),
        reserved=sum(reserved.values(), Counter()),
        own_is_free=True,
        own_nodes=frozenset(node for run in own for node in used.by_run.get(run, {})),
    )


def _sources(api: Api, nodes: NodeList, settings: Topology) -> tuple[Named | None, Notes]:
    """Return the placements that the controllers plan with, None if labels alone place nodes."""
    if not settings.makes_tree:
        return None, ()
    names = by_trust(provider.name for provider in settings.providers)
    trees, notes = read_trees(api, [name for name in names if name != LABELS], settings.levels)
    placed = {**trees, LABELS: label_placements(nodes.nodes, settings)}
    return [(name, placed[name]) for name in names if name in placed], notes


def _reserved(
    api: Api, own: Collection[RunName], by_run: Mapping[RunName, Mapping[str, int]], now: datetime
) -> dict[RunName, Counter[str]]:
    """Return the GPUs by node that the live plan of each other run holds and whose pods do not run yet."""
    newest: dict[RunName, PlacementPlan] = {}
    try:
        for page in pages(api, PLACEMENTPLANS, ListSelector(), hint=HINT):
            for plan in (entry.value for entry in page.entries):
                run = RunName(plan.metadata.namespace, plan.spec.run)
                is_named = plan.metadata.name == f"{run.name}-{plan.spec.number}"  # by the controllers
                if is_named and run not in own and (run not in newest or newest[run].spec.number < plan.spec.number):
                    newest[run] = plan
    except NotServed:
        return {}  # GKM's controllers are not installed, so there are no plans
    reserved = {}
    for run, plan in newest.items():
        try:
            expires = plan.spec.expires_at
            if expires is not None and datetime.fromisoformat(expires).astimezone(UTC) <= now:
                continue
            claims = gpus_by_node(plan.spec)
        except (PlanUnreadable, ValueError, OverflowError):
            continue  # as for the controllers, it reserves no GPUs
        claims.subtract(by_run.get(run, {}))
        reserved[run] = +claims  # only what is more than 0
    return reserved


def _pods(api: Api) -> dict[RunName, PodDemand]:
    """Return one pod of each Run that can be read."""
    found = {}
    for page in pages(api, RUNS, ListSelector(), hint=HINT):
        for run in (entry.value for entry in page.entries):
            with suppress(ValueError):
                found[RunName(run.metadata.namespace, run.metadata.name)] = pod_of(run.spec)
    return found


def _loads(
    reserved: Mapping[RunName, Mapping[str, int]], pod_of_run: Mapping[RunName, PodDemand]
) -> dict[str, pods.NodeLoad]:
    """Return what pods request that have not started, by node."""
    loads: dict[str, pods.NodeLoad] = {}
    for run in reserved.keys() & pod_of_run.keys():
        for node, gpus in reserved[run].items():
            loads[node] = added(loads.get(node, pods.NodeLoad()), load_of(pod_of_run[run], gpus))
    return loads
