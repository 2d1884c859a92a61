"""Node objects as files: `<directory>/<namespace or _cluster-scoped>/<node>.yaml`, replaced only on change."""

from pathlib import Path

import msgspec
from gkm.api import documents
from gkm.api.meta import timestamp
from gkm.api.nodes import CacheNode, NodeStatus
from gkm.hoststate import files, names
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import ref_of_scope
from gkm.hoststate.names import CLUSTER_SCOPE, InvalidName

from gkm_agent.interfaces.sink import NotWritten
from gkm_agent.report.objects import manifest, node_object, with_conditions


class FileStatusSink:
    """The StatusSink of a directory."""

    def __init__(self, directory: Path, node: str) -> None:
        self._directory = directory
        self._node = names.cache_name(node)

    def scopes(self) -> set[str | None]:
        """See StatusSink."""
        found: set[str | None] = set()
        for path in self._directory.glob(f"*/{self._node}.yaml"):
            try:
                found.add(ref_of_scope(path.parent.name, "any").namespace)
            except InvalidName:
                continue
        return found

    def publish(self, scope: str | None, status: NodeStatus) -> None:
        """See StatusSink."""
        path, now = self._path(scope), timestamp()
        try:
            current = _status_in(path)
            status = with_conditions(status, current.conditions if current else [], now)
            if current != status:
                node = node_object(self._node, scope, status, now)
                text = documents.encode(manifest(node), width=120)
                files.replace(path, text.encode(), durable=False)
        except OSError as error:
            raise NotWritten(f"{path}: {error.strerror}") from error

    def remove(self, scope: str | None) -> None:
        """See StatusSink."""
        path = self._path(scope)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise NotWritten(f"{path}: {error.strerror}") from error
        files.remove_empty(path.parent)

    def _path(self, scope: str | None) -> Path:
        return self._directory / (CLUSTER_SCOPE if scope is None else names.namespace(scope)) / f"{self._node}.yaml"


def _status_in(path: Path) -> NodeStatus | None:
    """Return the status in a file; None for a missing or invalid file."""
    try:
        node: CacheNode = msgspec.yaml.decode(files.read_bounded(path), type=CacheNode)
    except (FileNotFoundError, UnreadableState, RecursionError, ValueError):  # ValueError: YAML parses invalid dates
        return None
    return node.status
