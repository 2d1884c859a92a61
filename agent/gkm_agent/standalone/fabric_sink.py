"""NodeFabric as a file, `<directory>/<node>.fabric.yaml`, replaced only on change. There is no Node to label."""

from pathlib import Path

import msgspec
import yaml
from gkm.api.fabrics import NodeFabric, NodeFabricStatus
from gkm.api.meta import timestamp
from gkm.hoststate import files, names
from gkm.hoststate.files import UnreadableState
from msgspec import structs

from gkm_agent.fabric.objects import fabric_object, with_conditions
from gkm_agent.fabric.report import FabricReport
from gkm_agent.interfaces.sink import NotWritten
from gkm_agent.report.objects import manifest


class FileFabricSink:
    """The FabricSink of a directory."""

    def __init__(self, directory: Path, node: str) -> None:
        self._node = names.cache_name(node)
        self._path = directory / f"{self._node}.fabric.yaml"
        self._survey = directory / f"{self._node}.ibnetdiscover.gz"

    def publish(self, report: FabricReport) -> None:
        """See FabricSink."""
        try:
            current, now = _status_in(self._path), timestamp()
            status = with_conditions(report.status, current.conditions if current else [], 0, now)
            if current != status:
                value = manifest(fabric_object(self._node, status, now))
                text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120)
                files.replace(self._path, text.encode(), durable=False)
        except OSError as error:
            raise NotWritten(f"{self._path}: {error.strerror}") from error

    def invalidate(self) -> None:
        """See FabricSink; `publish` reads the file each time."""

    def survey(self, packed: bytes) -> None:
        """See FabricSink."""
        try:
            if _bytes_in(self._survey) != packed:
                files.replace(self._survey, packed, durable=False)
        except OSError as error:
            raise NotWritten(f"{self._survey}: {error.strerror}") from error


def _status_in(path: Path) -> NodeFabricStatus | None:
    """Return the status in a file without its time; None for a missing or invalid file."""
    try:
        fabric = msgspec.yaml.decode(_bytes_in(path) or b"", type=NodeFabric)
    except (RecursionError, ValueError):  # ValueError: YAML parses invalid dates
        return None
    return structs.replace(fabric.status, last_updated=None)


def _bytes_in(path: Path) -> bytes | None:
    try:
        return files.read_bounded(path)
    except (FileNotFoundError, UnreadableState):
        return None
