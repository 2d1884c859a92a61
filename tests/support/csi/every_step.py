"""Kill publish and unpublish at every step, restart, and check the invariants of node-state.md and volumes.md.

Run in a private mount namespace: DIRECTORY KIND. Prints the number of steps as JSON.
"""

import json
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gkm.hoststate import locks, records, trees
from gkm.hoststate.names import CacheRef
from gkm.mounts import mountinfo, syscalls
from gkm_csi.kernels import KernelWatch
from gkm_csi.status_errors import Code, StatusError
from gkm_csi.volumes import request
from gkm_csi.volumes.captures import Captures
from gkm_csi.volumes.layers import VolumeLayers, mark_for
from gkm_csi.volumes.locks import VolumeLocks
from gkm_csi.volumes.mounter import Mounter
from gkm_csi.volumes.publish import VolumePublisher
from gkm_csi.volumes.reconcile import reconcile
from gkm_csi.volumes.records import VolumeRecords
from gkm_csi.volumes.request import PublishRequest, VolumeTarget
from gkm_csi.volumes.settled import SettledLayers
from gkm_csi.volumes.unpublish import VolumeUnpublisher
from support.csi.nodes import NAMESPACE, NODE, NodeFiles, publish_message
from support.csi.steps import killed_at, told_of

MANY = 500
"""More steps than a call has: the loop below ends when a call survives."""


WRITTEN = "by the pod"
KINDS: Mapping[str, Mapping[str, str]] = {
    "read-only": {},
    "private": {"readOnly": "false", "mountPath": "/cache", "sizeLimit": "1Mi"},
    "empty": {"ifUnavailable": "empty"},
    "capture": {"readOnly": "false", "capture": "true"},
    "user namespace": {"userNamespace": "true", "mountPath": "/cache"},
    "capture in a user namespace": {"userNamespace": "true", "readOnly": "false", "capture": "true"},
}
READ_ONLY = ("read-only", "user namespace")
GROUP = {"__grp__k.json": json.dumps({"child_paths": {"k.json": "/built/k.json"}}), "k.json": "{}"}


class Here(Executor):
    """Runs its task at once, so that the steps of a capture are those of the call."""

    def submit(self, fn: Callable[..., object], /, *args: object, **kwargs: object) -> "Future[object]":  # type: ignore[override]
        done: Future[object] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


class Started:
    """The objects of a process after its start, without gRPC."""

    def __init__(self, files: NodeFiles) -> None:
        self.ledger = VolumeRecords(files.layout)
        self.mounter = Mounter(files.layout, files.kubelet)
        underway = VolumeLocks()
        reconcile(files.layout, self.ledger, self.mounter)
        layers = VolumeLayers(NODE, files.layout, self.ledger, self.mounter)
        self.publisher = VolumePublisher(
            NODE,
            files.layout,
            volume_records=self.ledger,
            mounter=self.mounter,
            layers=layers,
            volume_locks=underway,
            driver_version=lambda: None,
        )
        captures = Captures(files.layout, layers, 0.0)
        captures._pool = Here()  # type: ignore[assignment]
        captures.sweep()
        self.unpublisher = VolumeUnpublisher(
            NODE,
            volume_records=self.ledger,
            mounter=self.mounter,
            volume_locks=underway,
            captures=captures,
            kernels=KernelWatch(layers.mounted_layers, lambda *_: None),
            settled=SettledLayers(0, captures.capture_running),
            layer_ended=lambda *_: None,
        )


@dataclass(frozen=True)
class Case:
    """One volume of its own cache, whose object moves to a new digest after the first publish."""

    files: NodeFiles
    name: str
    kind: str

    @property
    def ref(self) -> CacheRef:
        return CacheRef(NAMESPACE, self.name)

    def asked(self) -> PublishRequest:
        target = self.files.target(self.name)
        told = {"cacheName": self.name, **KINDS[self.kind]}
        return request.parse_publish(publish_message(self.name, target, told), self.files.kubelet)

    @property
    def place(self) -> VolumeTarget:
        return self.asked().volume

    def point_to(self, text: str) -> str:
        content = {"one": f"{text} of {self.name}", "deep/two": "2", **GROUP}
        self.files.ready(self.name, content)
        return self.files.entry(content)

    def first(self) -> str:
        """Return the digest that the first publish finds, "" for the cache that is not there yet."""
        return "" if self.kind == "empty" else self.point_to("old")

    def write(self) -> None:
        """Do what a pod does."""
        (self.place.target / "mine").write_text(WRITTEN, encoding="utf-8")


def check_invariants(files: NodeFiles) -> None:
    """Check the invariants on the machine now, before any repair."""
    known = {record.volume_id: record for record in records.load_all(files.layout)}  # no half-written one
    for mount in Mounter(files.layout, files.kubelet).own_mounts():
        assert mount.mark.owner in known, "a mount without a record"
        assert mount.mark == mark_for(known[mount.mark.owner])
    for lock in (files.layout.state / "locks").iterdir():
        with locks.exclusive(lock):
            pass

    if files.layout.captured.exists():
        for kept in files.layout.captured.iterdir():
            assert kept.name.startswith(".tmp-") or is_whole(kept), "half a capture is seen"


def is_whole(kept: Path) -> bool:
    said = json.loads((kept / "captured.json").read_text(encoding="utf-8"))
    return said["files"] == 1 and (kept / "content" / "mine").read_text(encoding="utf-8") == WRITTEN


def check_started(files: NodeFiles) -> None:
    """Check the invariants after a start: no unfinished state is left."""
    check_invariants(files)
    assert list(files.layout.layers.iterdir()) == [], "a place of a private layer is left"
    assert not [mount for mount in mountinfo.read() if mount.point.startswith(f"{files.layout.run}/")]
    assert not list(files.layout.captured.glob(".tmp-*"))


def check_nothing_left(case: Case, started: Started) -> None:
    assert not [mount for mount in started.mounter.own_mounts() if mount.mark.owner == case.name]
    assert not case.place.target.exists()
    assert not case.files.layout.volume_record(case.name).parent.exists()
    assert not case.files.layout.usage_file(case.ref).exists()


def check_published(case: Case, started: Started, digest: str) -> None:
    (mount,) = [mount for mount in started.mounter.own_mounts() if mount.mark.owner == case.name]
    record = records.load(case.files.layout, case.name)
    assert record is not None
    assert mount.mark == mark_for(record)
    assert record.digest == digest, "the volume changed its digest"
    if digest:
        assert (case.place.target / "one").read_text(encoding="utf-8").endswith(case.name)
        group = json.loads((case.place.target / "__grp__k.json").read_text(encoding="utf-8"))["child_paths"]
        assert group["k.json"] == ("/cache/k.json" if "mountPath" in KINDS[case.kind] else "/built/k.json")
    else:
        assert list(case.place.target.iterdir()) == []
    if record.is_private:
        case.write()
    if digest and record.is_private:
        (case.place.target / "deep" / "new").mkdir()
    usage = json.loads(case.files.layout.usage_file(case.ref).read_text(encoding="utf-8"))
    assert [volume["volumeId"] for volume in usage["trainer-0"]] == [case.name]


def publish_killed(kind: str, files: NodeFiles, fatal: int) -> bool:
    """Kill a publish; then kubelet repeats it, or gives up."""
    died = False
    for ending in ("again", "unpublish"):
        case = Case(files, f"publish-{ending}-{fatal}", kind)
        old = case.first()
        died = killed_at(fatal, partial(_publish, Started(files), asked=case.asked()))
        check_invariants(files)
        seen = case.place.target.exists()
        new = case.point_to("new")
        started = Started(files)
        check_started(files)
        recorded = records.load(files.layout, case.name) is not None
        assert recorded or not seen, "a volume that a pod may have seen lost its record"
        if ending == "again":
            started.publisher.publish(case.asked())
            check_published(case, started, old if recorded else new)
        _unpublish(started, case.place)
        check_nothing_left(case, started)
        check_started(files)
    return died


def _publish(started: Started, asked: PublishRequest) -> None:
    started.publisher.publish(asked)


def _unpublish(started: Started, place: VolumeTarget) -> None:
    """Unpublish a volume as kubelet does: again, after the call that started its capture."""
    try:
        started.unpublisher.unpublish(place)
    except StatusError as refusal:
        assert refusal.code is Code.ABORTED
        started.unpublisher.unpublish(place)


def unpublish_killed(kind: str, files: NodeFiles, fatal: int) -> bool:
    """Kill an unpublish; then kubelet repeats it."""
    case = Case(files, f"unpublish-{fatal}", kind)
    case.first()
    Started(files).publisher.publish(case.asked())
    if kind not in READ_ONLY:
        case.write()
    place = case.place
    died = killed_at(fatal, partial(_unpublish, Started(files), place))
    check_invariants(files)
    started = Started(files)
    check_started(files)
    _unpublish(started, case.place)
    check_nothing_left(case, started)
    check_started(files)
    assert not kind.startswith("capture") or is_whole(files.layout.captured / case.name), "what the pod added is lost"
    return died


def steps_of(kill: Callable[[NodeFiles, int], bool], files: NodeFiles) -> int:
    """Kill at every step and return the number of steps.

    The rewritten files of each case go, as with their entry: the next one reads the size of each tree, and would have
    more steps.
    """

    def survives(fatal: int) -> bool:
        died = kill(files, fatal)
        trees.remove(files.layout.relocations_in_memory)
        return not died

    return next(fatal for fatal in range(MANY) if survives(fatal))


def main() -> None:
    files, kind = NodeFiles(Path(sys.argv[1])), sys.argv[2]
    told_of(syscalls, "mount", "umount2", "open_tree", "move_mount")
    steps = {
        "publish": steps_of(partial(publish_killed, kind), files),
        "unpublish": steps_of(partial(unpublish_killed, kind), files),
    }
    print(json.dumps(steps))


if __name__ == "__main__":
    main()
