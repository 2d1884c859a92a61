"""Every decoder of JSON from outside: how to call it, the type it decodes to, and how many bytes it may be given."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

from gkm.api import config, domain_capacity, domain_readiness, topology_status
from gkm.api.caches import GKMCache
from gkm.api.fabrics import NodeFabric
from gkm.gpus import inventory
from gkm.gpus.values import Inventory
from gkm.hoststate import files
from gkm.images import cache, cache_entries, configuration, manifest
from gkm.images.archives import docker_archive, oci_layout
from gkm.images.build import factors_file, triton, vllm
from gkm.images.configuration import MAX_CONFIG_BYTES
from gkm.images.manifest import MAX_MANIFEST_BYTES, Manifest
from gkm.images.pulling import extract
from gkm.images.registries import auth, credentials, registry
from gkm.images.signatures import bundles, entry_body, log_entries, trusted_root
from gkm.images.signatures import discovery as found
from gkm.images.signatures import signature_formats as parsing
from gkm.images.signing import ambient, keyless, keys, store
from gkm.kube import client, decoding, discovery, errors, resources, watches
from gkm.kube.resources import Resource
from gkm.templates.rendering import frames, process
from gkm.topology import lists, nodes, pods
from gkm.topology.fabrics import lldpd, netq, tree_file, ufm
from gkm_agent.fabric import lldp, neighbors
from gkm_agent.kubernetes import fabric_sink as kube_fabric
from gkm_agent.kubernetes.source import OWN_NODE
from gkm_agent.standalone.manifests import manifests_in
from gkm_cli import helper_programs
from gkm_cli.cache import gpu_files
from gkm_cli.why import unmounted
from gkm_operator.admission import review
from gkm_operator.admission.domains import requests as workloads
from gkm_operator.admission.domains import thin_objects
from gkm_operator.admission.groups import objects as templates
from gkm_operator.admission.groups.pods import ReviewedTaskPod
from gkm_operator.admission.https import http1
from gkm_operator.admission.pods import observed_caches
from gkm_operator.admission.pods.objects import CachePod
from gkm_operator.caches.nodes import liveness as presence
from gkm_operator.caches.nodes import reports as contributions
from gkm_operator.hypernodes import objects as topology
from gkm_operator.hypernodes.providers import messages as provider_messages
from gkm_operator.plans.state import objects
from gkm_operator.plans.write import flavors
from gkm_operator.taskgroups import members, nvlink_results, watcher
from msgspec import Raw

MIB = 1 << 20
GROUP_JOBS = members.watched(Resource("batch/v1", "Job", "jobs", namespaced=True, type=dict))
OBJECT_BYTES = 3 * MIB // 2
"""What etcd takes of an object."""
OBJECT_FACTOR = 40
"""An object of Kubernetes has passed the API server's validation: the schema limits lists and drops what it does not
know, labels are ASCII. This is what one object, or one page, would take if it did not. No density may be demanded of
objects: a valid pod with thousands of empty arguments would make the list of all pods unreadable."""


class Decoder(NamedTuple):
    """`kind` is the type that hostile texts are made for, `limit` how many bytes the program reads at most."""

    name: str
    call: Callable[[bytes], object]
    kind: Any
    limit: int
    free: int = 3 * MIB // 2
    """How much it may take however short the text is, with what the allocator rounds up."""
    factor: int = 8
    """How many times the bytes of the text it may take beyond that."""

    def allowed(self, size: int) -> int:
        """Return how many bytes it may take for a text of `size` bytes."""
        return self.free + self.factor * size


def _images(name: str, kind: Any, limit: int) -> Decoder:  # noqa: ANN401 -- any type
    return Decoder(name, lambda text: manifest.decode(text, kind, "it"), kind, limit)


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

    # A budget limits the bytes under review (gkm_operator.admission.domains.byte_budget).
    return Decoder(kind.__name__, decode, kind, http1.MAX_BODY_BYTES, factor=OBJECT_FACTOR)


def _file(text: bytes) -> Any:  # noqa: ANN401 -- gkm.images.build.contents.Entry, of which no file is needed here
    return SimpleNamespace(directory=False, name="x.json", size=len(text), read=lambda: text)


IMAGES = (
    Decoder(
        "image manifest", lambda text: Manifest.from_bytes(text, "").image(), manifest.ImageManifest, MAX_MANIFEST_BYTES
    ),
    Decoder("index", lambda text: Manifest.from_bytes(text, "").index(), manifest.ImageIndex, MAX_MANIFEST_BYTES),
    Decoder("referrers", partial(manifest.parse_referrers, name="x"), manifest._Referrers, registry.MAX_REFERRER_BYTES),
    Decoder("configuration", partial(configuration.read_config, name="x"), configuration.ImageConfig, MAX_CONFIG_BYTES),
    Decoder("cache manifest", cache_entries.entries_in, cache_entries._Manifest, extract.MAX_MANIFEST_BYTES),
    _images("summary label", cache._Summary, MAX_CONFIG_BYTES),
    _images("listing of docker's archive", list[docker_archive.ManifestEntry], docker_archive.MAX_LISTING_BYTES),
    _images("configuration of docker's archive", docker_archive._Config, MAX_CONFIG_BYTES),
    _images("mark of a layout", oci_layout._LayoutFile, oci_layout.MAX_LAYOUT_FILE_BYTES),
    _images("token", auth._Token, auth.MAX_TOKEN_BYTES),
    Decoder("docker config", credentials.parse, credentials._File, credentials.MAX_CONFIG_BYTES),
    Decoder(".dockercfg", credentials.parse, dict[str, credentials._Entry], credentials.MAX_CONFIG_BYTES),
    _images("legacy tag", store._Layers, MAX_MANIFEST_BYTES),
    _images("fallback tag", store._Index, MAX_MANIFEST_BYTES),
)
SIGNATURES = (
    Decoder("bundle", parsing.parse_bundle, bundles.Bundle, found.MAX_PAYLOAD_BYTES),
    Decoder(
        "simple signing",
        lambda text: parsing.parse_legacy(text, {parsing.SIGNATURE_ANNOTATION: "YQ=="}),
        parsing._SimpleSigning,
        found.MAX_PAYLOAD_BYTES,
    ),
    _images("statement", parsing._Statement, found.MAX_PAYLOAD_BYTES),
    Decoder(
        "log entry of an annotation",
        lambda text: log_entries.from_annotation(text.decode()),
        log_entries._Annotation,
        log_entries.MAX_ANNOTATION,
    ),
    Decoder("answer of a log", log_entries.from_response, dict[str, log_entries._EntryResponse], MIB),
    Decoder("answers of a log", log_entries.from_responses, log_entries._EntryResponses, MIB),
    _images("kind of a log entry", log_entries._Kind, found.MAX_PAYLOAD_BYTES),
    *(
        _images(f"log entry {kind.__name__}", kind, found.MAX_PAYLOAD_BYTES)
        for kind in (entry_body._Body, entry_body._Hashed, entry_body._DSSE, entry_body._Spec2)
    ),
    Decoder("trusted root", partial(trusted_root.parse, what="x"), trusted_root._Root, trusted_root.MAX_ROOT_BYTES),
    _images("answer of Fulcio", keyless._CertificateResponse, MIB),
    _images("answer of GitHub", ambient._GitHubToken, MIB),
    _images("encrypted key", keys._Encrypted, MIB),
)
KUBE = (
    Decoder(
        "list page",
        partial(decoding.page, resources.GKMCACHES),
        decoding._List,
        client.MAX_BODY_BYTES,
        factor=OBJECT_FACTOR,
    ),
    Decoder("watch event", partial(decoding.event, resources.GKMCACHES), decoding._Event, watches.MAX_LINE_BYTES),
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
            presence.NODES,
            presence.AGENTS,
            presence.AGENT_SETS,
            resources.DEFINITIONS,
            flavors.nodes("x"),
            objects.RUNS,
            objects.PLANS,
            objects.NODES,
            objects.PODS,
            resources.HYPERNODES,
            resources.KUEUE_TOPOLOGIES,
            topology.FABRICS,
            topology.SURVEY_TEXTS,
        )
    ),
    *(
        _object(resource, "task groups")
        for resource in (members.watched(resources.CONFIGMAPS), GROUP_JOBS, watcher.PODS)
    ),
    _object(nvlink_results.PODS, "a test of NVLink"),
    *(_object(resource, "the agent") for resource in (kube_fabric.NODEFABRICS, OWN_NODE)),
    Decoder("admission review", review.parse, review.AdmissionReview[review.ReviewRequest], http1.MAX_BODY_BYTES),
    *(
        _object(resource, "admission")
        for resource in (
            thin_objects.SETS,
            thin_objects.DOMAINS,
            thin_objects.CONFIG_MAPS,
            templates.TEMPLATES,
            templates.POOLS,
            templates.TASK_GROUPS,
            observed_caches.CACHES,
            observed_caches.CLUSTER_CACHES,
            observed_caches.NAMESPACES,
        )
    ),
    Decoder(
        "envelope of a workload",
        lambda text: workloads.open_envelope(text, "", "Pod"),
        review.AdmissionReview[workloads.Envelope],
        http1.MAX_BODY_BYTES,
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
        lambda text: unmounted.left_out(text.decode()),
        unmounted.Report,
        unmounted.MAX_REPORT,
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
        domain_capacity.Capacity,
        domain_capacity.MAX_BYTES,
        factor=OBJECT_FACTOR,
    ),
)
_LLDPCLI = dict[str, list[dict[str, list[dict[str, list[dict[str, list[dict[str, str]]]]]]]]]
HOSTS = (
    Decoder("lldpcli", lambda text: lldp.decode(text, lambda _: True), _LLDPCLI, neighbors.MAX_BYTES),
    Decoder("lldpcli of several nodes", lldpd.decode_nodes, dict[str, _LLDPCLI], lldpd.MAX_BYTES),
    Decoder("ports of UFM", ufm.decode, list[ufm.PortRow], ufm.MAX_PAGE_BYTES),
    Decoder("cables of NetQ", netq.decode, netq.NetQAnswer, netq.MAX_BYTES),
    Decoder("reply of a rendering child", process.decode, process.Reply, frames.MAX_REPLY_BYTES),
    Decoder("probe of GPUs", inventory.decode, Inventory, inventory.MAX_OUTPUT),
    Decoder(
        "credential helper",
        partial(helper_programs.login_in, "x", 0),
        helper_programs._HelperOutput,
        helper_programs.MAX_OUTPUT_BYTES,
    ),
    # 10,000 nodes that cannot be read are named, each with why.
    Decoder(
        "nodes offline",
        lambda text: lists.parse_nodes([text]),
        lists._List,
        64 * MIB,
        free=5 * MIB,
        factor=OBJECT_FACTOR,
    ),
    Decoder(
        "NodeFabrics offline", lambda text: lists.parse_fabrics([text]), NodeFabric, 64 * MIB, factor=OBJECT_FACTOR
    ),
    Decoder("one node offline", lambda text: lists.parse_nodes([text]), nodes.Node, 64 * MIB, factor=OBJECT_FACTOR),
    Decoder("one pod offline", lambda text: lists.parse_pods([text]), pods.Pod, 64 * MIB, factor=OBJECT_FACTOR),
    Decoder(
        "metadata of a kernel", lambda text: triton.parse_kernel(_file(text)), triton.Kernel, triton.MAX_METADATA_BYTES
    ),
    # The number of its values has an absolute limit instead.
    Decoder(
        "message of a provider",
        provider_messages.decode_from_child,
        provider_messages.FromChild,
        provider_messages.MAX_FRAME_BYTES,
        factor=OBJECT_FACTOR,
    ),
    Decoder("factors of vLLM", lambda text: vllm._factors(_file(text)), vllm.CacheKeyFactors, factors_file.MAX_BYTES),
)
YAML = (
    Decoder("GPUs in a file", lambda text: gpu_files.parse(text, "x"), list[gpu_files._Node], gpu_files.MAX_BYTES),
    # JSON is YAML. A value takes up to a kilobyte, so their number is limited instead (gkm.api.documents).
    Decoder("configuration file", config.parse, config.Config, files.MAX_BYTES, free=48 * MIB, factor=0),
    Decoder("tree file", tree_file.parse, tree_file.Model, tree_file.MAX_BYTES, free=48 * MIB, factor=0),
    Decoder("manifests of the agent", manifests_in, list[GKMCache], MIB, free=48 * MIB, factor=0),
)
GROUPS = {"images": IMAGES, "signatures": SIGNATURES, "kube": KUBE, "hosts": HOSTS, "yaml": YAML}
DECODERS = {decoder.name: decoder for group in GROUPS.values() for decoder in group}
