"""Read the files of a support bundle from the cluster, one by one.

A part that cannot be read is in about.json with the reason.
"""

import io
import platform
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from gkm.api.config import ConfigInvalid
from gkm.api.installation import ADMISSION, AGENT, CONTROLLERS, CSI, NAMESPACE, PROVIDER
from gkm.api.meta import timestamp
from gkm.hoststate import files
from gkm.hoststate.command_line import installed_version
from gkm.kube.api import Api, ListSelector
from gkm.kube.errors import ApiError
from gkm.kube.resources import (
    CLUSTERGKMCACHENODES,
    CLUSTERGKMCACHES,
    COMPUTEDOMAINS,
    DAEMON_SETS,
    EVENTS,
    GKMCACHENODES,
    GKMCACHES,
    GROUPTEMPLATES,
    NODES,
    PLACEMENTPLANS,
    POOLS,
    PROVIDER_TREES,
    RUNS,
    TASKGROUPS,
    Json,
    Resource,
)
from msgspec import Struct

from gkm_cli.clusters.reads import NotServed, Unreadable, pages
from gkm_cli.doctor.bundle.objects import (
    BundledEvent,
    BundledGroup,
    BundledNode,
    BundledObject,
    BundledPod,
    BundledPool,
    BundledStatus,
    BundledTree,
)
from gkm_cli.doctor.bundle.redaction import redacted, redacted_values
from gkm_cli.doctor.installation.objects import NAME_LABEL
from gkm_cli.doctor.installation.observation import DEPLOYMENTS, observe
from gkm_cli.doctor.runner import ClusterReader

MAX_OBJECTS = 500
"""Limit of objects of each kind; the file says how many exist."""
MAX_BYTES = 64 << 20
"""Limit of bytes of all files before compression, except about.json."""
MAX_LOGGED_PODS = 20
"""Limit of pods of each program whose logs are read; unready pods come first."""
LOG_LINES, LOG_BYTES = 500, 256 << 10
PROGRAMS = (AGENT, CSI, CONTROLLERS, ADMISSION, PROVIDER)
KINDS: tuple[Resource[Any], ...] = (
    GKMCACHES.of(BundledObject),
    CLUSTERGKMCACHES.of(BundledObject),
    GKMCACHENODES.of(BundledStatus),
    CLUSTERGKMCACHENODES.of(BundledStatus),
    RUNS.of(BundledObject),
    PLACEMENTPLANS.of(BundledStatus),
    GROUPTEMPLATES.of(BundledStatus),
    POOLS.of(BundledPool),
    TASKGROUPS.of(BundledGroup),
    COMPUTEDOMAINS.of(BundledStatus),
    Resource("gkm.io/v1alpha1", "NodeFabric", "nodefabrics", namespaced=False, type=BundledStatus),
    PROVIDER_TREES.of(BundledTree),
    NODES.of(BundledNode),
)
_MODE = 0o600


class BundledFile(NamedTuple):
    """A file to add to the support bundle."""

    name: str
    content: bytes


def write_archive(path: Path, directory: str, content: Iterable[BundledFile], made: datetime) -> None:
    """Write files into a new gzipped tar archive, below a directory name.

    Raises:
        OSError: the file cannot be written; an older one of this name stays.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for file in content:
            entry = tarfile.TarInfo(f"{directory}/{file.name}")
            entry.size, entry.mode, entry.mtime = len(file.content), _MODE, int(made.timestamp())
            archive.addfile(entry, io.BytesIO(file.content))
    files.replace(path, buffer.getvalue(), mode=_MODE)


class ServerVersion(Struct, frozen=True, rename="camel"):
    """The version of the API server."""

    git_version: str = ""
    platform: str = ""


class PartRead(NamedTuple):
    """A file of the support bundle and whether it was read: `why` is "" if so."""

    name: str
    why: str


class Contents:
    """Reads the files of a support bundle; afterwards `parts` says which could be read."""

    def __init__(self, api: Api, reader: ClusterReader) -> None:
        self._api = api
        self._reader = reader
        self._left = MAX_BYTES
        self.parts: list[PartRead] = []

    @property
    def unread(self) -> list[PartRead]:
        """Return the files of the bundle that could not be read."""
        return [part for part in self.parts if part.why]

    def files(self, findings: Sequence[Json]) -> Iterator[BundledFile]:
        """Yield all files of the support bundle; the last one, about.json, describes the others."""
        yield from self._within(_json("findings.json", findings))
        for resource in self._kinds():
            yield from self._part(f"objects/{resource.plural}.json", partial(self._objects, resource))
        yield from self._part("config.json", self._config)
        if not self._reader.namespace:
            yield from self._part("objects/pods.json", lambda: [pod for each in self._pods().values() for pod in each])
            yield from self._part("objects/workloads.json", self._workloads)
            yield from self._logs()
        yield from self._part("events.json", self._events)
        yield _json("about.json", self._about())

    def _kinds(self) -> list[Resource[Any]]:
        return [each for each in KINDS if each.namespaced or not self._reader.namespace]

    def _part(self, name: str, read: Callable[[], object]) -> Iterator[BundledFile]:
        """Yield a file, or remember why there is none. A kind that is not served has no objects."""
        try:
            found = read()
        except NotServed:
            return
        except Unreadable as failure:
            self.parts.append(PartRead(name, failure.why))
        except ApiError as error:
            self.parts.append(PartRead(name, error.message))
        else:
            yield from self._within(_json(name, found))

    def _within(self, file: BundledFile) -> Iterator[BundledFile]:
        """Yield a file for which there is room."""
        fits = len(file.content) <= self._left
        self._left -= len(file.content) if fits else 0
        self.parts.append(PartRead(file.name, "" if fits else f"the bundle has {MAX_BYTES} bytes at most"))
        if fits:
            yield file

    def _objects(self, resource: Resource[Any], selector: ListSelector | None = None) -> Json:
        """Return the first objects of a kind, and how many there are."""
        chosen = selector or ListSelector(self._reader.namespace if resource.namespaced else "")
        first: list[Any] = []
        count = 0
        for page in pages(self._api, resource, chosen):
            first += islice((entry.value for entry in page.entries), MAX_OBJECTS - len(first))
            count += len(page.entries) + len(page.unreadable)
        return {"count": count, "items": first}

    def _config(self) -> object:
        observed = observe(self._reader, ("config_map",))
        if observed.config_map is None:
            return None
        return {"invalid": str(observed.config)} if isinstance(observed.config, ConfigInvalid) else observed.config

    def _workloads(self) -> list[Any]:
        return [
            self._objects(
                each.of(BundledStatus), ListSelector(NAMESPACE, labels=f"{NAME_LABEL} in ({','.join(PROGRAMS)})")
            )
            for each in (DAEMON_SETS, DEPLOYMENTS)
        ]

    def _pods(self) -> dict[str, list[BundledPod]]:
        """Return the pods of each program, those that are not ready first."""
        found = {}
        for program in PROGRAMS:
            pods = Resource("v1", "Pod", "pods", namespaced=True, type=BundledPod)
            listed = self._objects(pods, ListSelector(NAMESPACE, labels=f"{NAME_LABEL}={program}"))["items"]
            found[program] = sorted(listed, key=lambda pod: (pod.ready, pod.metadata.name))
        return found

    def _logs(self) -> Iterator[BundledFile]:
        try:
            programs = self._pods()
        except Unreadable:
            return  # pods.json says why
        for pods in programs.values():
            for pod in pods[:MAX_LOGGED_PODS]:
                yield from self._logs_of(pod)

    def _logs_of(self, pod: BundledPod) -> Iterator[BundledFile]:
        for container in (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ())):
            for previous in (False, True) if container.restart_count else (False,):
                yield from self._log(pod.metadata.name, container.name, previous=previous)

    def _log(self, pod: str, container: str, *, previous: bool) -> Iterator[BundledFile]:
        name = f"logs/{pod}.{container}{'.previous' if previous else ''}.log"
        try:
            text = self._api.log(pod, container, NAMESPACE, LOG_LINES, LOG_BYTES, previous=previous)
        except ApiError as error:
            self.parts.append(PartRead(name, error.message))
        else:
            yield from self._within(BundledFile(name, redacted(text.decode(errors="replace")).encode()))

    def _events(self) -> Json:
        """Return the events about objects of GKM, of its pods, and of pods that wait for a volume."""
        selected: list[BundledEvent] = []
        count = 0
        for page in pages(self._api, EVENTS.of(BundledEvent), ListSelector(self._reader.namespace)):
            for event in (entry.value for entry in page.entries):
                if _is_ours(event):
                    count += 1
                    selected.append(event)
            selected = _newest(selected)
        return {"count": count, "items": selected}

    def _about(self) -> Json:
        return {
            "time": timestamp(self._reader.now()),
            "namespace": self._reader.namespace,
            "gkm": installed_version(),
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
            "kubernetes": self._version(),
            "parts": [{"file": part.name, "notRead": part.why} for part in self.parts],
        }

    def _version(self) -> object:
        try:
            return self._api.discover("/version", ServerVersion)
        except ApiError as error:
            self.parts.append(PartRead("about.json: kubernetes", error.message))
            return None


def _is_ours(event: BundledEvent) -> bool:
    regarding = event.regarding
    kinds = {each.kind for each in KINDS}
    return regarding.namespace == NAMESPACE or regarding.kind in kinds or "gkm" in event.note.lower()


def _newest(events: Iterable[BundledEvent]) -> list[BundledEvent]:
    def moment(event: BundledEvent) -> str:
        return event.event_time or event.deprecated_last_timestamp or event.metadata.creation_timestamp or ""

    return sorted(events, key=moment, reverse=True)[:MAX_OBJECTS]


def _json(name: str, value: object) -> BundledFile:
    plain = redacted_values(msgspec.to_builtins(value))
    return BundledFile(name, msgspec.json.format(msgspec.json.encode(plain), indent=1))
