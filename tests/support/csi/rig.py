"""The environment of most tests of the driver: one node, one namespace, the real process and a client."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from gkm.hoststate import records
from gkm.hoststate.names import CacheRef
from gkm.hoststate.records import VolumeRecord
from support.csi.driver import Client, Driver, driver
from support.csi.namespaces import MountNamespace, private_namespace
from support.csi.nodes import NodeFiles, node_files, publish_message

_numbers = count()


@dataclass
class Rig:
    files: NodeFiles
    namespace: MountNamespace
    driver: Driver
    client: Client

    def volume(self) -> tuple[str, Path]:
        volume = f"csi-{next(_numbers)}"
        return volume, self.files.target(volume)

    def ready(self, content: dict[str, str] | None = None) -> CacheRef:
        return self.files.ready(f"cache-{next(_numbers)}", content)

    def mounts(self, target: Path) -> list[str]:
        return self.namespace.mounts(target.parent)

    def nothing_left(self, volume: str, target: Path) -> bool:
        record = self.files.layout.volume_record(volume).parent
        return not self.mounts(target) and not target.exists() and not record.exists()

    def refused(self, volume: str, target: Path, attributes: dict[str, str], **pod: str) -> tuple[str, str]:
        return self.client.refused("NodePublishVolume", publish_message(volume, target, attributes, **pod))

    def record(self, volume: str) -> VolumeRecord:
        record = records.load(self.files.layout, volume)
        assert record is not None
        return record


@contextmanager
def running_rig() -> Iterator[Rig]:
    """Run a node of its own until the block ends."""
    with (
        node_files() as files,
        private_namespace() as namespace,
        driver(files, namespace) as running,
        Client(running.socket) as client,
    ):
        yield Rig(files, namespace, running, client)
