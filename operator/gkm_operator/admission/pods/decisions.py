"""Decide which volumes, mounts and variables a pod gets for the caches that it names, and return a patch. Pure.

The patch (RFC 6902) must never remove or replace anything.
"""

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from gkm.api import pod_caches
from gkm.api.caches import Delivery, ImageVolume
from gkm.api.installation import DRIVER
from gkm.api.network_settings import Network
from gkm.api.node_labels import cache_label
from gkm.api.pod_caches import INJECTED, VOLUMES
from gkm.hoststate.names import CacheRef, quoted
from gkm.mounts.relocation.mount_path import InvalidMountPath, MountPath
from gkm.runtimes import BY_NAME, RUNTIMES, VLLM
from gkm.runtimes.placement import beneath, beside, directory_of, environment, names_in
from msgspec import Struct

from gkm_operator.admission.domains.patches import add_entries, append_entries
from gkm_operator.admission.domains.requests import DomainRequest
from gkm_operator.admission.pods import wishes
from gkm_operator.admission.pods.image_volumes import Needs, NoImageVolume, choose, expressions
from gkm_operator.admission.pods.members import ObservedCaches, ThinCache
from gkm_operator.admission.pods.node_affinity import EXISTS, affinity_operations
from gkm_operator.admission.pods.objects import CacheContainer, CachePod, Volume, size
from gkm_operator.admission.pods.wishes import Skipped, Wishes
from gkm_operator.admission.review import ADMITTED, ReviewResponse, warned
from gkm_operator.mnnvl.gpu_requests import ContainerLocation, GPURequests
from gkm_operator.mnnvl.injection import Operation

MAX_SKIPPED = 16
"""Limit of skipped parts in one report."""
MAX_ANNOTATION_BYTES = 256 << 10
"""The size of all annotations of an object (k8s.io/apimachinery, pkg/api/validation: TotalAnnotationSizeLimitB)."""
_MAX_TEXT = 256

DIRECTORY: Final = "/var/cache/gkm"
"""Directory of the default mount paths, by the name of the cache."""

KSERVE = "kserve-container"
"""Name of the model's container in pods of an InferenceService."""
MAX_CONTAINERS = 16


class Injected(Struct, frozen=True, omit_defaults=True):
    """The additions to a pod for one cache, as the annotation gkm.io/injected records them.

    `environment` has the names of the variables; `member` and `image` are "" unless the cache is an image volume.
    """

    cache: str
    volume: str
    path: str
    containers: tuple[str, ...]
    environment: tuple[str, ...] = ()
    """The environment variables that were added: the mount path, or a directory in it."""
    nodes: str = ""
    """`preferred` or `required`, if a node affinity was added."""
    delivery: str = ""
    """`image` for an image volume."""
    member: str = ""
    """The member of the family whose image is mounted, for an image volume."""
    image: str = ""
    """The reference of an image volume."""


class Report(Struct, frozen=True, omit_defaults=True):
    """The content of the annotation gkm.io/injected: the caches that a pod got, and the parts that were left out."""

    caches: tuple[Injected, ...] = ()
    skipped: tuple[Skipped, ...] = ()


@dataclass(slots=True)
class Additions:
    """Entries to append to the lists of a pod, collected before the patch is made: several caches add to one list."""

    volumes: list[Mapping[str, Any]] = field(default_factory=list)
    mounts: dict[int, list[Mapping[str, Any]]] = field(default_factory=dict)
    """Volume mounts by the index of the container."""
    environment: dict[int, list[Mapping[str, Any]]] = field(default_factory=dict)
    nodes: list[Mapping[str, Any]] = field(default_factory=list)
    """Expressions on node labels, for a preference or a requirement."""
    pull_secrets: list[Mapping[str, Any]] = field(default_factory=list)

    def operations(self, pod: CachePod, *, required: bool) -> Iterator[Operation]:
        """Yield the patch operations on a pod; `required` makes the node expressions a requirement."""
        spec = pod.spec
        yield from append_entries("/spec/volumes", self.volumes, exists=spec.volumes is not None)
        for index, container in enumerate(pod.containers):
            at = f"/spec/containers/{index}"
            mounts, variables = self.mounts.get(index, []), self.environment.get(index, [])
            yield from append_entries(f"{at}/volumeMounts", mounts, exists=container.volume_mounts is not None)
            yield from append_entries(f"{at}/env", variables, exists=container.env is not None)
        yield from append_entries(
            "/spec/imagePullSecrets", self.pull_secrets, exists=spec.image_pull_secrets is not None
        )
        yield from affinity_operations(spec.affinity, self.nodes, required=required)


def encoded(report: Report) -> str:
    """Return the report as JSON for the annotation gkm.io/injected, with at most MAX_SKIPPED skipped parts."""
    skipped = tuple(Skipped(_short(each.what), _short(each.why)) for each in report.skipped[:MAX_SKIPPED])
    if more := len(report.skipped) - MAX_SKIPPED:
        skipped += (Skipped("more", f"{more} other parts"),) if more > 0 else ()
    return msgspec.json.encode(msgspec.structs.replace(report, skipped=skipped)).decode()


def annotated(pod: CachePod, report: str) -> Iterator[Operation]:
    """Yield the patch operation that writes the report into the pod's annotation gkm.io/injected."""
    yield from add_entries("/metadata/annotations", {INJECTED: report}, exists=pod.metadata.has_annotations)


def missing_bytes(pod: CachePod, report: str) -> int:
    """Return by how many bytes the report would exceed the API server's limit of a pod's annotations; 0 if it fits."""
    metadata = pod.metadata
    earlier = metadata.annotation(INJECTED)
    before = metadata.annotation_bytes - (size((INJECTED, earlier)) if earlier is not None else 0)
    return max(before + size((INJECTED, report)) - MAX_ANNOTATION_BYTES, 0)


def _short(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"


@dataclass(frozen=True, slots=True)
class PodCacheReview:
    """Adds the caches that a pod's labels name, as volumes, mounts, variables and node affinity.

    `node_labels`: agents label Nodes with their ready caches. `delivery` returns how pods get their caches, None while
    that is not known.
    """

    caches: ObservedCaches
    settings: Network
    node_labels: bool
    delivery: Callable[[], Delivery | None] = lambda: "csi"

    def decide(self, _view: object, request: DomainRequest[CachePod]) -> ReviewResponse:
        """Return the admission response for a pod: it always admits, with a patch if the pod names caches."""
        pod, metadata = request.object, request.object.metadata
        default = "" if wishes.has_label(metadata) else self.caches.default(request.namespace)
        wish = wishes.read(metadata, request.namespace, default)
        if request.operation != "CREATE" or _is_done(pod) or not (wish.caches or wish.skipped):
            return ADMITTED
        decision = _Decision(pod, wish, self)
        report = decision.report()
        text = encoded(report)
        if missing := missing_bytes(pod, text):
            why = f"its annotations leave {missing} bytes too few for {pod_caches.INJECTED}: shorten them"
            return warned(f"gkm.io/cache: the pod gets no cache: {why}")
        operations = (*decision.additions.operations(pod, required=wish.required), *annotated(pod, text))
        warnings = tuple(f"gkm.io/cache: {each.what}: {each.why}" for each in report.skipped)
        return ReviewResponse(allowed=True, warnings=warnings, patch=operations)


def _is_done(pod: CachePod) -> bool:
    """Return whether an earlier call has added a volume: the API server may call again after other webhooks."""
    names = {volume.name for volume in pod.spec.volumes or () if _may_be_ours(volume)}
    return pod.metadata.annotation(pod_caches.INJECTED) is not None and not names.isdisjoint(VOLUMES)


def _may_be_ours(volume: Volume) -> bool:
    return volume.image is not None or (volume.csi is not None and volume.csi.driver == DRIVER)


class _Decision:
    """The decision about one pod, cache by cache."""

    def __init__(self, pod: CachePod, wish: Wishes, review: PodCacheReview) -> None:
        self._pod = pod
        self._wish = wish
        self._review = review
        self._skipped = list(wish.skipped)
        gpus = GPURequests(review.settings)
        self._containers = chosen(pod, wish.container, gpus, self._skipped) if wish.caches else []
        self.additions = Additions()

    def report(self) -> Report:
        """Collect the additions; return the report about them."""
        found = [each for ref in self._wish.caches if (each := self._inject(ref)) is not None]
        return Report(tuple(found), tuple(self._skipped))

    def _skip(self, what: str, why: str) -> None:
        self._skipped.append(Skipped(what, why))

    def _inject(self, ref: CacheRef) -> Injected | None:
        name = VOLUMES[ref.namespace is None]
        delivery = self._review.delivery()
        if why := self._taken(ref, name) or ("" if delivery else "it is not known yet whether nodes have the driver"):
            self._skip(str(ref), why)
            return None
        if delivery == "image":
            return self._inject_image(ref, name)
        names = self._runtimes(ref)
        path = self._stated_path(ref, environment(names, "")) or f"{DIRECTORY}/{ref.name}"
        mounted = [index for index in self._containers if self._mount(index, path, [mount(name, path)])]
        if not mounted:
            return None
        self._report_unknown(ref, names)
        private = self._is_private(ref, names)
        variables = environment(names, path), self._beside(names, path) if private else {}
        added = [each for index in mounted for each in self._set_variables(index, *variables)]
        self.additions.volumes.append(self._volume(name, ref, path, private=private))
        return Injected(
            str(ref),
            name,
            path,
            tuple(self._pod.containers[index].name[:63] for index in mounted),
            tuple(dict.fromkeys(added)),
            self._prefer(ref),
        )

    def _inject_image(self, ref: CacheRef, name: str) -> Injected | None:
        """Add an image volume: read-only, at the path for which its image was built, at the verified digest."""
        try:
            member, volume, further = self._image_of(ref)
        except NoImageVolume as error:
            self._skip(str(ref), f"{error}; the pod starts without it")
            return None
        runtimes = names_in(member.status.runtime)
        mounts = [
            mount(name, beneath(volume.path, directory_of(each, runtimes)), subPath=f"io.{each}.cache")
            for each in runtimes
        ]
        mounted = [index for index in self._containers if self._mount(index, volume.path, mounts)]
        if not mounted:
            return None
        variables = environment(runtimes, volume.path)
        added = [each for index in mounted for each in self._set_variables(index, variables, {})]
        source = {"reference": volume.reference, "pullPolicy": "IfNotPresent"}
        self.additions.volumes.append({"name": name, "image": source})
        self.additions.nodes += expressions(further)
        self._add_pull_secrets(ref, member)
        return Injected(
            str(ref),
            name,
            volume.path,
            tuple(self._pod.containers[index].name[:63] for index in mounted),
            tuple(dict.fromkeys(added)),
            "required" if further else "",
            delivery="image",
            member=member.metadata.name,
            image=volume.reference,
        )

    def _image_of(self, ref: CacheRef) -> tuple[ThinCache, ImageVolume, Needs]:
        """Return the member whose image the pod gets, and what nodes must have beyond what the pod requires.

        Raises:
            NoImageVolume: the pod gets none; the message says why.
        """
        if self._wish.private:
            raise NoImageVolume(f"an image volume has no private layer: write {pod_caches.MODE}: read-only")
        choice = choose(self._review.caches.members(ref), self._pod.spec, required=self._wish.required)
        volume, runtimes = choice.member.image_volume, names_in(choice.member.status.runtime)
        stated = self._stated_path(ref, environment(runtimes, ""))
        if volume is None or (stated and stated != volume.path):
            built = volume.path if volume else ""
            raise NoImageVolume(
                f"the pod mounts the cache at {quoted(stated)}, and its image was built for {quoted(built)}"
            )
        return choice.member, volume, choice.further

    def _add_pull_secrets(self, ref: CacheRef, member: ThinCache) -> None:
        """Add the Secrets of the cache; kubelet reads the Secrets of the pod's own namespace only."""
        names = [each.name for each in member.spec.image_pull_secrets]
        if names and ref.namespace is None:
            self._skip("imagePullSecrets", f"kubelet cannot read those of {ref}: the pod needs its own")
            return
        present = {each.name for each in self._pod.spec.image_pull_secrets or ()}
        present |= {each["name"] for each in self.additions.pull_secrets}
        self.additions.pull_secrets += [{"name": each} for each in names if each not in present]

    def _is_private(self, ref: CacheRef, names: Sequence[str]) -> bool:
        """Return whether the pod gets a private layer: it wants one, or a runtime needs one."""
        writing = [BY_NAME[each].title for each in names if BY_NAME[each].needs_private_layer]
        if writing and not self._wish.private:
            self._skip(pod_caches.MODE, f"{writing[0]} writes beside its kernels: {ref} has a private layer")
        return self._wish.private or bool(writing)

    def _runtimes(self, ref: CacheRef) -> tuple[str, ...]:
        """Return the runtimes of a cache. While they are unknown: of the variable that a container states, else vLLM's.

        One variable for each of them at one path would have several runtimes write into one directory.
        """
        if known := names_in(self._review.caches.runtime(ref) or ""):
            return known
        stated = {each.name for index in self._containers for each in self._pod.containers[index].env or ()}
        return (next((each for each in RUNTIMES if not stated.isdisjoint(each.variables)), VLLM).name,)

    def _report_unknown(self, ref: CacheRef, names: Sequence[str]) -> None:
        runtime = self._review.caches.runtime(ref)
        if not runtime:
            unknown = "was not observed yet" if runtime is None else "has an unknown runtime as yet"
            why = f"{ref} {unknown}: the pod gets the variables of {BY_NAME[names[0]].title}"
            self._skip("runtime", why)

    def _taken(self, ref: CacheRef, name: str) -> str:
        """Return why the pod gets no volume of a cache, "" if it gets one."""
        for volume in self._pod.spec.volumes or ():
            if names_cache(volume, ref):
                return f"the pod has volume {quoted(volume.name)} of it"
            if volume.name == name:
                return f"the pod has another volume {name}"
        return ""

    def _stated_path(self, ref: CacheRef, directories: Mapping[str, str]) -> str:
        """Return where the pod says that containers see the cache, also by a variable; "" if it does not."""
        if self._wish.path and ref == self._wish.caches[0]:
            return self._wish.path
        stated = (_literal(self._pod.containers[index], directories) for index in self._containers)
        return next(filter(None, stated), "")

    def _mount(self, index: int, path: str, mounts: Sequence[Mapping[str, str]]) -> bool:
        """Add mounts at or below a path; False if the container has another one at the path, above it or below it."""
        container = self._pod.containers[index]
        ours = [each["mountPath"] for each in self.additions.mounts.get(index, ())]
        if (other := next((each for each in (*ours, *container.paths) if _overlap(each, path)), None)) is not None:
            why = f"its mount or device at {quoted(other)} overlaps {quoted(path)}"
            self._skip(f"container {quoted(container.name)}", why)
            return False
        self.additions.mounts.setdefault(index, []).extend(mounts)
        return True

    def _set_variables(self, index: int, needed: Mapping[str, str], further: Mapping[str, str]) -> list[str]:
        """Add the variables that a container lacks; return their names."""
        container = self._pod.containers[index]
        values = {each.name: each.value for each in container.env or ()}
        values |= {each["name"]: each["value"] for each in self.additions.environment.get(index, ())}
        added = {name: value for name, value in {**needed, **further}.items() if name not in values}
        entries = [{"name": name, "value": value} for name, value in added.items()]
        if entries:
            self.additions.environment.setdefault(index, []).extend(entries)
        for name, value in needed.items():
            if values.get(name, value) != value:
                why = f"it has another value in container {quoted(container.name)}, and the cache is at {quoted(value)}"
                self._skip(name, why)
        return list(added)

    def _beside(self, names: Sequence[str], path: str) -> dict[str, str]:
        """Return the variables of further runtimes, except those for which the pod names a cache."""
        own = {name for ref in self._wish.caches for name in environment(self._runtimes(ref), "")}
        return {name: value for name, value in beside(names, path).items() if name not in own}

    def _volume(self, name: str, ref: CacheRef, path: str, *, private: bool) -> dict[str, object]:
        # Each wish is stated: the defaults of the driver differ by its mode of capture.
        attributes = {
            "cacheName" if ref.namespace is not None else "clusterCacheName": ref.name,
            "mountPath": path,
            "readOnly": "false" if private else "true",
            "ifUnavailable": self._wish.if_unavailable,
        }
        if self._pod.spec.host_users is False:
            attributes["userNamespace"] = "true"
        return {"name": name, "csi": {"driver": DRIVER, "volumeAttributes": attributes}}

    def _prefer(self, ref: CacheRef) -> str:
        """Collect the label of the nodes where the cache is ready; return how nodes are chosen, "" if they are not."""
        label = cache_label(ref.namespace, ref.name)
        if label is not None and self._review.node_labels:
            self.additions.nodes.append({"key": label, "operator": EXISTS})
            return "required" if self._wish.required else "preferred"
        if self._wish.required:
            long = f"{ref}: its namespace and name have too many characters for a label of nodes"
            off = "nodes have no labels of ready caches: set fabric.cacheLabels in gkm-config"
            self._skip(pod_caches.NODES, long if label is None else off)
        return ""


def mount(volume: str, path: str, **further: str) -> Mapping[str, str]:
    """Return a volumeMounts entry for a volume at a path."""
    return {"name": volume, "mountPath": path, **further}


def names_cache(volume: Volume, ref: CacheRef) -> bool:
    """Return whether a volume of the pod already mounts this cache, by GKM's or the upstream driver's attributes."""
    if volume.csi is None or volume.csi.driver != DRIVER:
        return False
    attributes = volume.csi.volume_attributes or {}
    upstream = attributes.get("csi.gkm.io/GKMCache") == ref.name
    if ref.namespace is None:
        return attributes.get("clusterCacheName") == ref.name or (upstream and "csi.gkm.io/namespace" not in attributes)
    return attributes.get("cacheName") == ref.name or (upstream and "csi.gkm.io/namespace" in attributes)


def _literal(container: CacheContainer, directories: Mapping[str, str]) -> str:
    """Return the path that a variable of a container states; "" if absent, or if its value refers to others.

    `directories` has the directory below the path that each variable names.
    """
    for variable in container.env or ():
        if variable.name in directories and variable.value and "$(" not in variable.value:
            try:
                stated = MountPath(variable.value).text
                return MountPath(stated.removesuffix(f"/{directories[variable.name]}")).text
            except InvalidMountPath:
                return ""
    return ""


def _overlap(one: str, other: str) -> bool:
    """Return whether two mount paths are the same, or one is inside the other."""
    first, second = (f"{posixpath.normpath(each).strip('/')}/".lstrip("/") for each in (one, other))
    return first.startswith(second) or second.startswith(first)


def chosen(pod: CachePod, name: str, gpus: GPURequests, skipped: list[Skipped]) -> list[int]:
    """Return the indices of the containers that get the cache: the named one, all with GPUs, or the main container.

    Claims are not read, so claims of any device class are used where no container requests a GPU by a resource.
    """
    names = [each.name for each in pod.containers]
    if name:
        if found := [index for index, each in enumerate(names) if each == name]:
            return found[:1]
        skipped.append(Skipped(pod_caches.CONTAINER, f"the pod has no container {quoted(name)}"))
        return []
    found = _indices(gpus.containers(pod.spec)) or _indices(gpus.containers(pod.spec, lambda _: gpus.device_classes))
    if not found:
        found = [index for index, each in enumerate(names) if each == KSERVE] or list(range(len(names)))[:1]
    if more := found[MAX_CONTAINERS:]:
        skipped.append(Skipped("containers", f"{len(more)} more than {MAX_CONTAINERS}"))
    return found[:MAX_CONTAINERS]


def _indices(locations: list[ContainerLocation]) -> list[int]:
    return [each.index for each in locations if each.field == "containers"]
