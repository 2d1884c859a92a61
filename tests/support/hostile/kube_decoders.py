"""Decoders of what the API server has: objects, reviews, and texts that annotations and ConfigMaps hold."""

from functools import partial
from typing import Any

from gkm.api import domain_capacity, domain_readiness, topology_status
from gkm.kube import client, decoding, discovery, errors, resources
from gkm.kube.resources import Resource
from gkm_agent.kubernetes import sinks as kube_fabric
from gkm_agent.kubernetes.source import OWN_NODE
from gkm_cli.why import injection
from gkm_operator.admission import review
from gkm_operator.admission.domains import cluster_view
from gkm_operator.admission.domains import requests as workloads
from gkm_operator.admission.groups import objects as templates
from gkm_operator.admission.groups.decisions import ReviewedTaskPod
from gkm_operator.admission.https import session
from gkm_operator.admission.pods import members as cache_members
from gkm_operator.admission.pods.objects import CachePod
from gkm_operator.caches import node_reports as contributions
from gkm_operator.caches import totals as presence
from gkm_operator.hypernodes.providers import cluster_watch as topology
from gkm_operator.nodes import NODES
from gkm_operator.plans.state import objects
from gkm_operator.pods import LISTED_PODS, PODS
from gkm_operator.taskgroups import members
from msgspec import Raw
from support.hostile.decoder import OBJECT_BYTES, OBJECT_FACTOR, Decoder

GROUP_JOBS = members.watched(Resource("batch/v1", "Job", "jobs", namespaced=True, type=dict))


def _object(resource: Resource[Any], of: str) -> Decoder:
    return Decoder(
        f"{resource.kind} of {of}",
        partial(decoding.single_object, resource),
        resource.type,
        OBJECT_BYTES,
        factor=OBJECT_FACTOR,
    )


def _reviewed(kind: type[Any]) -> Decoder:
    def decode(text: bytes) -> object:
        of_any = review.GroupVersionKind("", "", "")
        return workloads.decode(workloads.Envelope("u", of_any, "CREATE", object=Raw(text)), kind)

    # A budget limits the bytes under review (gkm_operator.admission.domains.reviewer).
    return Decoder(kind.__name__, decode, kind, session.MAX_BODY_BYTES, factor=OBJECT_FACTOR)


KUBE = (
    Decoder(
        "list page",
        partial(decoding.page, resources.GKMCACHES),
        decoding._List,
        client.MAX_BODY_BYTES,
        factor=OBJECT_FACTOR,
    ),
    Decoder("watch event", partial(decoding.event, resources.GKMCACHES), decoding._Event, client.MAX_LINE_BYTES),
    Decoder("refusal", lambda text: errors.from_body(400, text), errors._Status, client.MAX_ERROR_BYTES),
    *(
        _object(resource, "the library")
        for resource in (
            resources.GKMCACHES,
            resources.CLUSTERGKMCACHES,
            resources.GKMCACHENODES,
            resources.RUNS,
            resources.PLACEMENTPLANS,
            resources.NODES,
            resources.GROUPTEMPLATES,
            resources.POOLS,
            resources.TASKGROUPS,
        )
    ),
    Decoder(
        "kinds of a version",
        lambda text: decoding.document("/apis/a/v1", text, discovery._Kinds),
        discovery._Kinds,
        client.MAX_BODY_BYTES,
        factor=OBJECT_FACTOR,
    ),
    *(
        _object(resource, "the controllers")
        for resource in (
            contributions.REPORTS,
            presence.AGENT_SETS,
            resources.DEFINITIONS,
            objects.RUNS,
            objects.PLANS,
            NODES,
            PODS,
            resources.HYPERNODES,
            resources.KUEUE_TOPOLOGIES,
            resources.KERNEL_CACHES,
            resources.KERNEL_CACHE_NODE_GROUPS,
            topology.FABRICS,
            topology.SURVEY_TEXTS,
        )
    ),
    *(_object(resource, "task groups") for resource in (members.watched(resources.CONFIGMAPS), GROUP_JOBS)),
    _object(LISTED_PODS, "a test of NVLink"),
    *(_object(resource, "the agent") for resource in (kube_fabric.NODEFABRICS, OWN_NODE)),
    Decoder("admission review", review.parse, review.CacheReview, session.MAX_BODY_BYTES),
    *(
        _object(resource, "admission")
        for resource in (
            cluster_view.SETS,
            cluster_view.DOMAINS,
            cluster_view.CONFIG_MAPS,
            templates.TEMPLATES,
            templates.POOLS,
            templates.TASK_GROUPS,
            cache_members.CACHES,
            cache_members.CLUSTER_CACHES,
            cache_members.NAMESPACES,
        )
    ),
    Decoder(
        "envelope of a workload",
        lambda text: workloads.open_envelope(text, "", "Pod"),
        workloads.EnvelopeReview,
        session.MAX_BODY_BYTES,
    ),
    *(
        _reviewed(kind)
        for kind in (
            workloads.ReviewedSet,
            workloads.ReviewedClique,
            workloads.ReviewedScalingGroup,
            workloads.ReviewedPod,
            workloads.UserInfo,
            templates.ReviewedTemplate,
            templates.ReviewedPool,
            templates.ReviewedGroup,
            templates.ReviewedIdentity,
            ReviewedTaskPod,
            CachePod,
        )
    ),
    Decoder(
        "report about a pod",
        lambda text: injection.read_report(text.decode()),
        injection.InjectionReport,
        injection.MAX_REPORT,
        factor=OBJECT_FACTOR,
    ),
    Decoder(
        "readiness",
        lambda text: domain_readiness.parse_readiness(text.decode()),
        domain_readiness.MNNVLReadiness,
        domain_readiness.MAX_TEXT,
        factor=OBJECT_FACTOR,
    ),
    Decoder(
        "topology report",
        lambda text: topology_status.parse_status(text.decode()),
        topology_status.TopologyStatus,
        topology_status.MAX_BYTES,
        factor=OBJECT_FACTOR,
    ),
    Decoder(
        "capacity",
        lambda text: domain_capacity.parse_capacity(text.decode()),
        domain_capacity.DomainCapacity,
        domain_capacity.MAX_BYTES,
        factor=OBJECT_FACTOR,
    ),
)
