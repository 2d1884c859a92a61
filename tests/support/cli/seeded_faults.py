"""The faults of an installation, by the name of the check that must find each: how to plant it, and to remove it."""

import base64
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from datetime import UTC, datetime, timedelta

import yaml
from gkm.api.meta import timestamp
from gkm.api.nodes import IncompatibleGPUs, NodeCacheStatus
from gkm.kube.resources import CONFIGMAPS, GKMCACHENODES, NODES, TASKGROUPS, VALIDATING_WEBHOOKS, Json, Resource
from gkm_agent.kubernetes.sinks import apply_with_status
from gkm_operator.admission import certificates
from msgspec import structs
from support.cli import installed_site as site_of
from support.cli.installed_site import CONFIG, CRDS, NODE, SYSTEM, TEAM, InstalledSite, condition, on_node
from support.cli.seeded_images import running_image
from support.cluster.certificates import Authority
from support.operator.upstream import upstream

Plant = Callable[[InstalledSite], AbstractContextManager[None]]
DEFINITIONS = site_of.resource(
    "apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
IN_TEN_MINUTES, LONG_AGO = timedelta(minutes=10), timedelta(days=200)


def absent(where: Resource[Json], name: str, space: str | None = None) -> Plant:
    return lambda site: site.without(where, name, space)


def changed(where: Resource[Json], name: str, space: str | None, patch: Json, *, status: bool = False) -> Plant:
    return lambda site: site.patched(where, name, space, patch, status=status)


def configured(change: Callable[[Json], object]) -> Plant:
    made = deepcopy(CONFIG)
    change(made)
    return changed(CONFIGMAPS, "gkm-config", SYSTEM, site_of.config_text(made))


def definition(made: Callable[[], Json]) -> Plant:
    @contextmanager
    def plant(site: InstalledSite) -> Iterator[None]:
        other = made()
        ours = CRDS / f"gkm.io_{other['spec']['names']['plural']}.yaml"
        site.cluster.objects.replace(other)
        try:
            yield
        finally:
            site.cluster.objects.replace(yaml.load(ours.read_text(encoding="utf-8"), yaml.CSafeLoader))

    return plant


def outdated() -> Json:
    made: Json = yaml.load((CRDS / "gkm.io_placementplans.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
    schema = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    del schema["conditions"]
    return made


@contextmanager
def kind_missing(site: InstalledSite) -> Iterator[None]:
    site.remove(DEFINITIONS, "runs.gkm.io", None)
    try:
        yield
    finally:
        site.cluster.apply(CRDS / "gkm.io_runs.yaml")


def reported(**fields: object) -> Plant:
    """The agent reports the cache in another state."""
    state = on_node("Failed") if "state" not in fields else on_node(str(fields.pop("state")))
    return _reporting(structs.replace(state, **fields))


def _reporting(state: NodeCacheStatus) -> Plant:
    @contextmanager
    def plant(site: InstalledSite) -> Iterator[None]:
        apply_with_status(site.api, GKMCACHENODES, site_of.report(NODE, {"llama": state}))
        try:
            yield
        finally:
            apply_with_status(site.api, GKMCACHENODES, site_of.report(NODE, {"llama": on_node()}))

    return plant


@contextmanager
def stale(site: InstalledSite) -> Iterator[None]:
    apply_with_status(site.api, GKMCACHENODES, site_of.report("gone", {"llama": on_node()}))
    try:
        yield
    finally:
        site.remove(site_of.REPORTS, "gone", TEAM)


def labeled_pod(site: InstalledSite) -> AbstractContextManager[None]:
    """A pod with the label of a cache, where no webhook saw it."""
    metadata = {"name": "by-label", "namespace": TEAM, "labels": {"gkm.io/cache": "llama"}}
    spec = {"containers": [{"name": "main", "image": "registry.example/app:1"}]}
    return site.created(site_of.PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def waiting_pod(site: InstalledSite) -> AbstractContextManager[None]:
    """A pod with a volume of the cache, which kubelet has not started."""
    csi = {"driver": "csi.gkm.io", "volumeAttributes": {"cacheName": "llama"}}
    containers = [{"name": "main", "image": "registry.example/app:1"}]
    spec = {"nodeName": NODE, "containers": containers, "volumes": [{"name": "kernels", "csi": csi}]}
    metadata = {"name": "waits", "namespace": TEAM}
    return site.created(site_of.PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def without_node(site: InstalledSite) -> AbstractContextManager[None]:
    """The controllers have found no node that the cache fits."""
    ready = condition("Ready", "False", "NodesIncompatible", "the cache fits no GPU of the 1 node that reports it")
    conditions = [condition("Verified", "True", "CosignSuccess", ""), ready]
    return changed(site_of.CACHES, "llama", TEAM, {"status": {"conditions": conditions}}, status=True)(site)


def group_without_feature(site: InstalledSite) -> AbstractContextManager[None]:
    """A TaskGroup, where group templates are not installed."""
    metadata = {"name": "train", "namespace": TEAM}
    made = {"apiVersion": "gkm.io/v1alpha1", "kind": "TaskGroup", "metadata": metadata, "spec": {"pool": "gb200"}}
    return site.created(TASKGROUPS, made)


def verdict(status: str, reason: str, message: str) -> Plant:
    """The controllers refuse the cache, and the agent repeats the reason (gkm_agent's decisions)."""
    conditions = [condition("Verified", status, reason, message), condition("Ready", "False", "NotVerified")]
    refused = changed(site_of.CACHES, "llama", TEAM, {"status": {"conditions": conditions}}, status=True)

    @contextmanager
    def plant(site: InstalledSite) -> Iterator[None]:
        with refused(site), reported(reason=reason, message=message)(site):
            yield

    return plant


def authorities(pem: Callable[[], bytes]) -> Plant:
    @contextmanager
    def plant(site: InstalledSite) -> Iterator[None]:
        (hook,) = site.api.get(VALIDATING_WEBHOOKS, "gkm-caches")["webhooks"]
        client = hook["clientConfig"] | {"caBundle": base64.b64encode(pem()).decode()}
        patch = {"webhooks": [hook | {"clientConfig": client}]}
        with site.patched(VALIDATING_WEBHOOKS, "gkm-caches", None, patch):
            yield

    return plant


@contextmanager
def unlabeled(site: InstalledSite) -> Iterator[None]:
    """Without the label, the controller of DaemonSets wants no agent there and deletes the pod."""
    labels = {"metadata": {"labels": {"nvidia.com/gpu.present": None}}}
    counts = {"status": dict.fromkeys(("currentNumberScheduled", "desiredNumberScheduled", "numberReady"), 0)}
    with (
        site.patched(NODES, NODE, None, labels),
        site.without(site_of.PODS, "gkm-agent-0", SYSTEM),
        site.patched(site_of.DAEMON_SETS, "gkm-agent", SYSTEM, counts, status=True),
    ):
        yield


@contextmanager
def no_agent(site: InstalledSite) -> Iterator[None]:
    """A pod that a quota refuses: the controller of DaemonSets, which does not run here, counts none."""
    counts = {"status": {"currentNumberScheduled": 0, "numberReady": 0}}
    with (
        site.without(site_of.PODS, "gkm-agent-0", SYSTEM),
        site.patched(site_of.DAEMON_SETS, "gkm-agent", SYSTEM, counts, status=True),
    ):
        yield


def driver_of_another(site: InstalledSite) -> AbstractContextManager[None]:
    spec = {"attachRequired": True, "podInfoOnMount": True, "volumeLifecycleModes": ["Persistent"]}
    made = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "csi.gkm.io"}, "spec": spec}
    return site.replaced(site_of.CSI_DRIVERS, made)


def unready(name: str) -> Plant:
    """A pod of a DaemonSet whose image cannot be pulled."""

    @contextmanager
    def plant(site: InstalledSite) -> Iterator[None]:
        waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
        container = {
            "name": "c",
            "image": "i",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"waiting": waiting},
        }
        pod = {
            "status": {
                "phase": "Pending",
                "conditions": [condition("Ready", "False", "")],
                "containerStatuses": [container],
            }
        }
        count = {"status": {"numberReady": 0}}
        with (
            site.patched(site_of.PODS, f"{name}-0", SYSTEM, pod, status=True),
            site.patched(site_of.DAEMON_SETS, name, SYSTEM, count, status=True),
        ):
            yield

    return plant


@contextmanager
def no_leader(site: InstalledSite) -> Iterator[None]:
    # The leader that renews sees another holder, and waits.
    late = f"{datetime.now(UTC) - IN_TEN_MINUTES:%Y-%m-%dT%H:%M:%S.%fZ}"
    spec = {"holderIdentity": "killed", "renewTime": late, "leaseDurationSeconds": 15}
    with site.patched(site_of.LEASES, "gkm-controllers", SYSTEM, {"spec": spec}):
        yield


@contextmanager
def skewed(site: InstalledSite) -> Iterator[None]:
    ahead = site_of.lease(NODE, datetime.now(UTC) + IN_TEN_MINUTES)
    site.api.merge(site_of.LEASES, NODE, {"spec": ahead["spec"]}, "kube-node-lease")
    try:
        yield
    finally:
        back = site_of.lease(NODE, datetime.now(UTC))
        site.api.merge(site_of.LEASES, NODE, {"spec": back["spec"]}, "kube-node-lease")


def image_of(name: str, image: str) -> Plant:
    @contextmanager
    def plant(site: InstalledSite) -> Iterator[None]:
        (container,) = site.api.get(site_of.DAEMON_SETS, name, SYSTEM)["spec"]["template"]["spec"]["containers"]
        patch = {"spec": {"template": {"spec": {"containers": [container | {"image": image}]}}}}
        with site.patched(site_of.DAEMON_SETS, name, SYSTEM, patch):
            yield

    return plant


def policy_of(**fields: object) -> Plant:
    return configured(lambda made: made["verification"]["policies"][0].update(fields))


FAULTS: Mapping[str, Plant] = {
    "kinds/missing": kind_missing,
    "kinds/foreign": definition(upstream),
    "kinds/outdated": definition(outdated),
    "config/invalid": changed(CONFIGMAPS, "gkm-config", SYSTEM, {"data": {"config.yaml": "verfication: {mode: warn}"}}),
    "config/trust": configured(lambda made: made["verification"].update(policies=[])),
    "config/keys": policy_of(keys=["/etc/gkm/cosign.pub"]),
    "config/rights": configured(lambda made: made.update(taskGroups={"enabled": True})),
    "rights/bindings": absent(site_of.BINDINGS, "gkm-agent"),
    "webhook/missing": absent(VALIDATING_WEBHOOKS, "gkm-caches"),
    "webhook/endpoints": absent(site_of.SLICES, "gkm-admission-0", SYSTEM),
    "webhook/ca-bundle": authorities(lambda: Authority.create("another CA").pem),
    "webhook/expired": authorities(lambda: certificates.make(["x"], datetime.now(UTC) - LONG_AGO).authority),
    "csi/driver-missing": absent(site_of.CSI_DRIVERS, "csi.gkm.io"),
    "csi/driver-settings": driver_of_another,
    "csi/missing": absent(site_of.DAEMON_SETS, "gkm-csi", SYSTEM),
    "csi/not-ready": unready("gkm-csi"),
    "csi/not-registered": changed(site_of.CSI_NODES, NODE, None, {"spec": {"drivers": []}}),
    "agent/missing": absent(site_of.DAEMON_SETS, "gkm-agent", SYSTEM),
    "agent/not-ready": unready("gkm-agent"),
    "agent/absent": no_agent,
    "classes/runtime": absent(site_of.RUNTIME_CLASSES, "nvidia"),
    "classes/priority": changed(
        site_of.DAEMON_SETS,
        "gkm-csi",
        SYSTEM,
        {"spec": {"template": {"spec": {"priorityClassName": "gpu-critical"}}}},
    ),
    "controllers/versions": image_of("gkm-csi", "gkm-csi:1.2.3"),
    "controllers/missing": absent(site_of.DEPLOYMENTS, "gkm-controllers", SYSTEM),
    "controllers/leader": no_leader,
    "nodes/label": unlabeled,
    "nodes/kubelet": changed(NODES, NODE, None, {"status": {"nodeInfo": {"kubeletVersion": "v1.29.3"}}}, status=True),
    "nodes/clock": skewed,
    "nodes/disk-full": reported(reason="DiskFull", message="the disk has 1 GiB left, and 20 % stay free"),
    "nodes/driver-too-old": reported(
        state="Incompatible",
        reason="DriverTooOld",
        incompatible_gpus=[
            IncompatibleGPUs([*range(8)], "DriverTooOld", "the cache needs CUDA 12.8, the driver has 12.2")
        ],
    ),
    "nodes/stale-reports": stale,
    "caches/no-policy": policy_of(images=["registry.example/others/*"]),
    "caches/signature": verdict("False", "SignatureInvalid", "no signature of the image is by a key of the policy"),
    "caches/credentials": verdict("False", "Unauthorized", "Secret ml-apps/registry does not exist"),
    "caches/refused": verdict("False", "NotFound", "registry.example has no team/llama:1"),
    "caches/failed": reported(reason="UnsafeContent", message="the layer has a device"),
    "caches/stuck": reported(
        state="Downloading", progress=3, last_updated=timestamp(datetime.now(UTC) - timedelta(hours=2))
    ),
    "caches/no-node": without_node,
    "caches/waiting-pods": waiting_pod,
    "caches/by-label": labeled_pod,
    "groups/inactive": group_without_feature,
    "captures/destination": configured(lambda made: made.update(capture={"registry": "registry.example/captured"})),
    "captures/refused": changed(
        GKMCACHENODES.of(dict),
        NODE,
        TEAM,
        {"status": {"captures": [{"volume": "csi-1", "state": "Waiting", "reason": "Unauthorized", "message": "m"}]}},
        status=True,
    ),
    "images/signatures": lambda site: running_image(site, signed=False),
}
"""By the names on docs/reference/doctor.md."""
