"""The sinks of an agent without a cluster: files of a directory, replaced only on change.

`<namespace or _cluster-scoped>/<node>.yaml` has the caches of a scope, `<node>.fabric.yaml` NodeFabric. There is no
Node to label.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from gkm.api import documents
from gkm.api.fabrics import NodeFabric, NodeFabricStatus
from gkm.api.meta import timestamp
from gkm.api.nodes import CacheNode, ClusterGKMCacheNode, GKMCacheNode, NodeStatus
from gkm.hoststate import files, names
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import ref_of_scope
from gkm.hoststate.names import CLUSTER_SCOPE, InvalidName
from msgspec import structs

from gkm_agent.fabric.objects import HEALTHY, fabric_object, healthy, last_domain
from gkm_agent.fabric.report import FabricReport
from gkm_agent.interfaces import NotWritten
from gkm_agent.report.objects import READY, manifest, node_object, ready, with_condition

T = TypeVar("T", bound=CacheNode | NodeFabric)


class FileStatusSink:
    """The StatusSink of a directory."""

    def __init__(self, directory: Path, node: str) -> None:
        self._directory = directory
        self._node = names.node_name(node)

    def scopes(self) -> set[str | None]:
        """Implement StatusSink.scopes."""
        found: set[str | None] = set()
        for path in self._directory.glob(f"*/{self._node}.yaml"):
            try:
                found.add(ref_of_scope(path.parent.name, "any").namespace)
            except InvalidName:
                continue
        return found

    def publish(self, scope: str | None, status: NodeStatus) -> None:
        """Implement StatusSink.publish."""
        path, now = self._path(scope), timestamp()
        with _written_to(path):
            kind: type[CacheNode] = ClusterGKMCacheNode if scope is None else GKMCacheNode
            found = _read(path, kind)
            new = with_condition(status, READY, ready(status), found.status.conditions if found else [], now)
            if found is None or found.status != new:
                _replace(path, node_object(self._node, scope, new, now))

    def remove(self, scope: str | None) -> None:
        """Implement StatusSink.remove."""
        path = self._path(scope)
        with _written_to(path):
            path.unlink(missing_ok=True)
        files.remove_empty(path.parent)

    def _path(self, scope: str | None) -> Path:
        return self._directory / (CLUSTER_SCOPE if scope is None else names.namespace(scope)) / f"{self._node}.yaml"


class FileFabricSink:
    """The FabricSink of a directory."""

    def __init__(self, directory: Path, node: str) -> None:
        self._node = names.node_name(node)
        self._path = directory / f"{self._node}.fabric.yaml"
        self._survey = directory / f"{self._node}.ibnetdiscover.gz"

    def publish(self, report: FabricReport) -> None:
        """Implement Sink.publish: write the file of NodeFabric."""
        now = timestamp()
        with _written_to(self._path):
            found = _read(self._path, NodeFabric)
            before = found.status if found else NodeFabricStatus()
            status = structs.replace(report.status, last_domain=last_domain(report.status, before))
            new = with_condition(status, HEALTHY, healthy(status), before.conditions, now)
            if found is None or structs.replace(found.status, last_updated=None) != new:
                _replace(self._path, fabric_object(self._node, new, now))

    def invalidate(self) -> None:
        """Implement Sink.invalidate; no action, because `publish` reads the file each time."""

    def survey(self, packed: bytes) -> None:
        """Implement FabricSink.survey."""
        with _written_to(self._survey):
            if _bytes_in(self._survey) != packed:
                files.replace(self._survey, packed, durable=False)


@contextmanager
def _written_to(path: Path) -> Iterator[None]:
    """Raise an OSError of the block as NotWritten."""
    try:
        yield
    except OSError as error:
        raise NotWritten(f"{path}: {error.strerror}") from error


def _replace(path: Path, value: CacheNode | NodeFabric) -> None:
    files.replace(path, documents.encode(manifest(value), width=120).encode(), durable=False)


def _read(path: Path, kind: type[T]) -> T | None:
    """Return the object in a file, None for a missing or invalid file."""
    try:
        return documents.decode(_bytes_in(path) or b"", kind, files.MAX_BYTES)
    except ValueError:
        return None


def _bytes_in(path: Path) -> bytes | None:
    try:
        return files.read_bounded(path)
    except (FileNotFoundError, UnreadableState):
        return None
