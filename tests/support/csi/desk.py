"""Publish and unpublish over mounts in memory, with a failure in any step."""

from dataclasses import dataclass, field

from gkm.hoststate import records
from gkm.hoststate.names import CacheRef
from gkm.mounts.mountinfo import Mark
from gkm_csi.kernels import KernelWatch
from gkm_csi.volumes.captures import Captures
from gkm_csi.volumes.layers import VolumeLayers
from gkm_csi.volumes.locks import VolumeLocks
from gkm_csi.volumes.publish import VolumePublisher
from gkm_csi.volumes.records import VolumeRecords
from gkm_csi.volumes.request import PublishRequest, parse_publish
from gkm_csi.volumes.settled import SettledLayers
from gkm_csi.volumes.unpublish import VolumeUnpublisher
from support.csi.mounts import MountsInMemory
from support.csi.nodes import NODE, NodeFiles, publish_message


class FailingRecords(VolumeRecords):
    fails = ""

    def add(self, record: records.VolumeRecord) -> None:
        if self.fails == "add":
            raise OSError(28, "No space left on device")
        super().add(record)

    def write_usage(self, ref: CacheRef) -> None:
        if self.fails == "write_usage":
            raise OSError(28, "No space left on device")
        super().write_usage(ref)


@dataclass
class InMemoryNode:
    files: NodeFiles
    mounts: MountsInMemory = field(default_factory=MountsInMemory)
    volume_locks: VolumeLocks = field(default_factory=VolumeLocks)

    def __post_init__(self) -> None:
        self.volume_records = FailingRecords(self.files.layout)
        layers = VolumeLayers(NODE, self.files.layout, self.volume_records, self.mounts)
        self.publisher = VolumePublisher(
            NODE,
            self.files.layout,
            volume_records=self.volume_records,
            mounter=self.mounts,
            layers=layers,
            volume_locks=self.volume_locks,
            driver_version=lambda: None,
        )
        self.ended_layers: list[int] = []
        captures = Captures(self.files.layout, layers, 0.0)
        self.unpublisher = VolumeUnpublisher(
            NODE,
            volume_records=self.volume_records,
            mounter=self.mounts,
            volume_locks=self.volume_locks,
            captures=captures,
            kernels=KernelWatch(layers.mounted_layers, lambda *_: None),
            settled=SettledLayers(0, captures.capture_running),
            layer_ended=lambda _record, used, _misses: self.ended_layers.append(used),
        )
        self.ref = self.files.ready()

    def request(self, volume: str = "csi-1", **attributes: str) -> PublishRequest:
        volume_attributes = attributes or {"cacheName": self.ref.name}
        return parse_publish(publish_message(volume, self.files.target(volume), volume_attributes), self.files.kubelet)

    def record(self) -> records.VolumeRecord | None:
        return records.load(self.files.layout, "csi-1")

    def is_clean(self) -> bool:
        leftover = (
            self.files.layout.volume_record("csi-1").parent.exists() or self.files.layout.usage_file(self.ref).exists()
        )
        return not leftover and not self.mounts.mounted and not self.mounts.directories

    def mark(self) -> Mark:
        record = self.record()
        assert record is not None
        return Mark("csi-1", record.digest)
