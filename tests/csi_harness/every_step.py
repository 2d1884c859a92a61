"""Kills publish and unpublish at every step they have, restarts, and checks the invariants of node-state.md.

Run in a private mount namespace: DIRECTORY. Prints how many steps there were, as JSON.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from csi_harness.nodes import NAMESPACE, NODE, NodeFiles, publish_message
from csi_harness.steps import Counter
from gkm.hoststate import locks, records
from gkm.hoststate.names import CacheRef
from gkm_csi import request
from gkm_csi.captures import Captures
from gkm_csi.layers import Layers
from gkm_csi.ledger import Ledger
from gkm_csi.mounter import Mounter
from gkm_csi.publish import Publisher
from gkm_csi.reconcile import reconcile
from gkm_csi.request import Place, Publish
from gkm_csi.underway import Underway
from gkm_csi.unpublish import Unpublisher

MANY = 500
"""More steps than a call has: the loop below ends when a call survives."""


class Started:
    """What a process has after its start, without the gRPC around it."""

    def __init__(self, files: NodeFiles) -> None:
        self.ledger = Ledger(files.layout)
        self.mounter = Mounter(files.layout, files.kubelet)
        underway = Underway()
        reconcile(files.layout, self.ledger, self.mounter)
        layers = Layers(NODE, files.layout, self.ledger, self.mounter)
        self.publisher = Publisher(
            NODE,
            files.layout,
            ledger=self.ledger,
            mounter=self.mounter,
            layers=layers,
            underway=underway,
            driver_version=lambda: None,
        )
        captures = Captures(files.layout, layers.of_mounted)
        self.unpublisher = Unpublisher(
            NODE, ledger=self.ledger, mounter=self.mounter, underway=underway, captures=captures
        )


@dataclass(frozen=True)
class Case:
    """One volume of its own cache, whose object moves to a new digest after the first publish."""

    files: NodeFiles
    name: str

    @property
    def ref(self) -> CacheRef:
        return CacheRef(NAMESPACE, self.name)

    def asked(self) -> Publish:
        target = self.files.target(self.name)
        return request.publish(publish_message(self.name, target, {"cacheName": self.name}), self.files.kubelet)

    @property
    def place(self) -> Place:
        return self.asked().place

    def point_to(self, text: str) -> str:
        self.files.ready(self.name, {"one": f"{text} of {self.name}"})
        return self.files.entry({"one": f"{text} of {self.name}"})


def killed(files: NodeFiles, fatal: int, call: Callable[[Started], None]) -> bool:
    """Run `call` in a child that dies at step `fatal`; return whether it died."""
    child = os.fork()
    if child == 0:
        started = Started(files)
        counter = Counter(fatal)
        counter.arm()
        call(started)
        counter.disarm()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "the call itself failed"
    return False


def check_invariants(files: NodeFiles) -> None:
    """Hold what is on the machine now against the invariants, before anything is mended."""
    known = {record.volume_id: record for record in records.load_all(files.layout)}  # no half-written one
    for mount in Mounter(files.layout, files.kubelet).ours():
        assert mount.mark.owner in known, "a mount without a record"
        assert mount.mark.content == known[mount.mark.owner].digest
    for lock in (files.layout.state / "locks").iterdir():
        with locks.exclusive(lock):
            pass


def check_nothing_left(case: Case, started: Started) -> None:
    assert not [mount for mount in started.mounter.ours() if mount.mark.owner == case.name]
    assert not case.place.target.exists()
    assert not case.files.layout.volume_record(case.name).parent.exists()
    assert not case.files.layout.usage_file(case.ref).exists()


def check_published(case: Case, started: Started, digest: str) -> None:
    (mount,) = [mount for mount in started.mounter.ours() if mount.mark.owner == case.name]
    assert mount.mark.content == digest, "the volume changed its digest"
    assert (case.place.target / "one").read_text(encoding="utf-8").endswith(case.name)
    usage = json.loads(case.files.layout.usage_file(case.ref).read_text(encoding="utf-8"))
    assert [volume["volumeId"] for volume in usage["trainer-0"]] == [case.name]


def publish_killed(files: NodeFiles, fatal: int) -> bool:
    """Kill a publish; then kubelet asks again, or gives up."""
    died = False
    for ending in ("again", "unpublish"):
        case = Case(files, f"publish-{ending}-{fatal}")
        old = case.point_to("old")
        died = killed(files, fatal, partial(_publish, asked=case.asked()))
        check_invariants(files)
        seen = case.place.target.exists()
        new = case.point_to("new")
        started = Started(files)
        check_invariants(files)
        recorded = records.load(files.layout, case.name) is not None
        assert recorded or not seen, "a volume that a pod may have seen lost its record"
        if ending == "again":
            started.publisher.publish(case.asked())
            check_published(case, started, old if recorded else new)
        started.unpublisher.unpublish(case.place)
        check_nothing_left(case, started)
    return died


def _publish(started: Started, asked: Publish) -> None:
    started.publisher.publish(asked)


def unpublish_killed(files: NodeFiles, fatal: int) -> bool:
    """Kill an unpublish; then kubelet asks again."""
    case = Case(files, f"unpublish-{fatal}")
    case.point_to("old")
    Started(files).publisher.publish(case.asked())
    place = case.place
    died = killed(files, fatal, lambda started: started.unpublisher.unpublish(place))
    check_invariants(files)
    started = Started(files)
    check_invariants(files)
    started.unpublisher.unpublish(case.place)
    check_nothing_left(case, started)
    return died


def steps_of(kill: Callable[[NodeFiles, int], bool], files: NodeFiles) -> int:
    """Kill at every step and return how many there were."""
    return next(fatal for fatal in range(MANY) if not kill(files, fatal))


def main() -> None:
    files = NodeFiles(Path(sys.argv[1]))
    print(json.dumps({"publish": steps_of(publish_killed, files), "unpublish": steps_of(unpublish_killed, files)}))  # noqa: T201


if __name__ == "__main__":
    main()
