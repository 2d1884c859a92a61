"""A node with two published volumes and targets for a third; no request for the third may change the node."""

from itertools import count
from pathlib import Path

import grpc
from gkm.hoststate.files import names_in
from gkm_csi.proto import csi_pb2
from support.csi.rig import Rig

CACHE = {"__grp__k.json": '{"child_paths": {"k.json": "/old/k.json"}}', "k.json": "{}", "deep/er/file": "x"}
numbers = count()


class Scene:
    """A node with two published volumes, and targets for a third."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.ref = rig.ready(CACHE)
        (self.volume, self.target), (self.private, self.writable) = rig.volume(), rig.volume()
        rig.client.publish(self.volume, self.target, {"cacheName": self.ref.name})
        rig.client.publish(self.private, self.writable, {"cacheName": self.ref.name, "readOnly": "false"})
        self.records = names_in(rig.files.layout.volumes)
        self.mounts = rig.namespace.mounts(rig.files.root)

    def place(self, kind: str) -> Path:
        """Make the target of a kind; a test that mounts there unmounts it with `cleaned`."""
        number = next(numbers)
        target = self.rig.files.target(f"fuzz-{number}")
        match kind:
            case "there":
                target.mkdir()
            case "link":
                target.symlink_to("/etc")
            case "link on the way":
                (target.parent / "way").symlink_to(self.rig.files.root)
                return target.parent / "way" / "mount"
            case "file":
                target.touch()
            case "with files":
                target.mkdir()
                (target / "mine").touch()
            case "foreign mount":
                target.mkdir()
                assert self.rig.namespace.run("mount", "-t", "tmpfs", "foreign", target).returncode == 0
            case "no parent":
                return target.parent / "missing" / "mount"
            case "long name":
                return target.with_name("x" * 256)
        return {
            "another volume's": self.target,
            "in a read-only volume": self.target / "mount",
            "in a private volume": self.writable / "mount",
            "outside": Path("/etc/gkm-fuzz"),
            "kubelet itself": self.rig.files.kubelet,
            "relative": Path("pods/x/mount"),
        }.get(kind, target)

    def ask(self, message: csi_pb2.NodePublishVolumeRequest) -> str:
        try:
            self.rig.client.call("NodePublishVolume", message)
        except grpc.RpcError as error:
            details = str(error.details())
            assert str(self.rig.files.root) not in details.replace(str(self.rig.files.kubelet), "")
            assert "Traceback" not in details
            assert len(details) < 2000
            return str(error.code().name)
        return "OK"

    def check(self) -> None:
        """Assert that the node is as it was at the beginning."""
        layout = self.rig.files.layout
        assert names_in(layout.volumes) == self.records
        assert self.rig.namespace.mounts(self.rig.files.root) == self.mounts
        assert list(layout.layers.iterdir()) == []
        assert not layout.captured.exists() or list(layout.captured.iterdir()) == []
        assert list(layout.relocated_in_memory(self.rig.record(self.volume).digest).glob(".tmp-*")) == []
        assert self.rig.client.call("Probe", csi_pb2.ProbeRequest()).ready.value
