"""The paths of all files on a node; the only module that joins names to paths (docs/design/node-state.md)."""

from dataclasses import dataclass
from pathlib import Path

from gkm.hoststate import names, placement
from gkm.hoststate.names import CLUSTER_SCOPE, CacheRef

CAPTURED_FILE = "captured.json"
"""In the directory of a capture: the pod that wrote the files, and their size."""
CAPTURED_CONTENT = "content"
"""In the directory of a capture: the files."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of GKM on one node. Files below `state` survive a reboot, files below `run` do not."""

    state: Path = Path("/var/lib/gkm")
    run: Path = Path("/run/gkm")

    @property
    def store(self) -> Path:
        """Return the directory of the store entries."""
        return self.state / "store" / "sha256"

    @property
    def trash(self) -> Path:
        """Return the trash directory, on the same file system as the store, so that one rename moves an entry there."""
        return self.state / "trash"

    @property
    def work(self) -> Path:
        """Return the directory for unfinished extractions of images."""
        return self.state / "work"

    @property
    def blobs(self) -> Path:
        """Return the directory of blobs from registries, complete or partial; it survives a restart."""
        return self.state / "blobs"

    @property
    def relocations(self) -> Path:
        """Return the directory of the relocated trees of all entries."""
        return self.state / "relocated"

    def relocated(self, digest: str) -> Path:
        """Return the directory of an entry's relocated trees: for each mount path, the files that contain it."""
        return self.relocations / names.digest(digest).removeprefix("sha256:")

    @property
    def relocations_in_memory(self) -> Path:
        """Return the directory of the relocated trees that lie in memory: /run is a tmpfs."""
        return self.run / "relocated"

    def relocated_in_memory(self, digest: str) -> Path:
        """Return the directory of an entry's relocated trees in memory."""
        return self.relocations_in_memory / names.digest(digest).removeprefix("sha256:")

    @property
    def locks(self) -> Path:
        """Return the directory of the lock files."""
        return self.state / "locks"

    def process_lock(self, process: str) -> Path:
        """Return the lock file of the one process of a kind: `agent` or `csi`."""
        return self.locks / process

    @property
    def empty(self) -> Path:
        """Return an empty directory: an overlay without an upper layer needs two lower ones."""
        return self.state / "empty"

    @property
    def caches(self) -> Path:
        """Return the directory of the pointers, the files with the state of each cache on this node."""
        return self.state / "caches"

    @property
    def catalog(self) -> Path:
        """Return the file in which the agent records its entries."""
        return self.state / "entries.json"

    @property
    def survey(self) -> Path:
        """Return the file with the last survey of the InfiniBand subnet in which all devices answered."""
        return self.state / "surveys" / "whole.gz"

    @property
    def check_request(self) -> Path:
        """Return the file whose creation requests a check of every entry now; it is removed when the check starts."""
        return self.state / "check"

    @property
    def volumes(self) -> Path:
        """Return the directory of the volume records."""
        return self.run / "volumes"

    @property
    def layers(self) -> Path:
        """Return the directory in which private layers are assembled; it is empty between two publishes."""
        return self.run / "layers"

    @property
    def captured(self) -> Path:
        """Return the directory of captures: files that pods added to their volumes, until the agent removes them.

        Below it each captured volume has a directory. CAPTURED_FILE in it says whose files they are.
        """
        return self.state / "captured"

    def capture(self, volume_id: str) -> Path:
        """Return the directory of the capture of a volume."""
        return self.captured / names.volume_id(volume_id)

    @property
    def usage(self) -> Path:
        """Return the directory of the usage files, which list the pods that use each cache."""
        return self.run / "usage"

    @property
    def waiting(self) -> Path:
        """Return the directory of the files that mark caches for which pods wait."""
        return self.run / "waiting"

    @property
    def counters(self) -> Path:
        """Return the file with the counters of the CSI process."""
        return self.run / "csi" / "counters.json"

    @property
    def kernel_misses(self) -> Path:
        """Return the file with the compiled entries (kernels) of each volume, as the CSI process found them."""
        return self.run / "csi" / "kernel-misses.json"

    def entry(self, digest: str) -> Path:
        """Return the directory of a store entry: `cache/` is the content for pods, `files.json` lists its files."""
        return self.state.joinpath("store", "sha256", names.digest(digest).removeprefix("sha256:"))

    def entry_lock(self, digest: str) -> Path:
        """Return the lock file of an entry; it lies outside the entry, which is sealed and renamed as a whole."""
        return self.locks / names.digest(digest).removeprefix("sha256:")

    def pointer(self, ref: CacheRef) -> Path:
        """Return the file with the state of a cache object on this node."""
        # In one joinpath: a reconcile of the agent needs it several times for each of hundreds of caches.
        return self.state.joinpath("caches", ref.scope, ref.name, "cache.json")

    def family(self, ref: CacheRef) -> Path:
        """Return the file with the chosen member of the family `ref`."""
        return self.state.joinpath("caches", ref.scope, ref.name, "family.json")

    def volume_record(self, volume_id: str) -> Path:
        """Return the path of the record file of a mounted volume."""
        return self.volumes / names.volume_id(volume_id) / "record.json"

    def usage_file(self, ref: CacheRef) -> Path:
        """Return the path of the usage file of a cache, which lists the pods that mount it."""
        return self.usage / ref.scope / ref.name / "usage.json"

    def waiting_file(self, ref: CacheRef) -> Path:
        """Return the file whose modification time is the time at which a pod last waited for a cache."""
        return self.waiting / ref.scope / ref.name

    @property
    def owned(self) -> tuple[Path, ...]:
        """Return all directories and files that GKM creates directly below `state` and `run`.

        Other names belong to others.
        """
        below_state = (self.store.parent, self.trash, self.work, self.blobs, self.relocations, self.empty, self.caches)
        below_run = (
            *(self.volumes, self.layers, self.usage, self.waiting, self.counters.parent),
            self.relocations_in_memory,
        )
        return *below_state, self.captured, self.catalog, self.survey.parent, self.check_request, self.locks, *below_run

    def make_directories(self) -> None:
        """Create all directories of GKM on the node; idempotent, and any process may be the first.

        Raises:
            OSError: the roots cannot be written.
        """
        self.make_state_directories()
        for directory in (self.volumes, self.usage, self.layers):
            directory.mkdir(parents=True, exist_ok=True)

    def make_state_directories(self) -> None:
        """Create the directories of GKM below `state` on the node.

        Raises:
            OSError: `state` cannot be written.
        """
        for directory in (self.store, self.trash, self.work, self.empty, self.caches, self.locks):
            directory.mkdir(parents=True, exist_ok=True)
        placement.spread(self.work)


def ref_of_scope(scope: str, name: str) -> CacheRef:
    """Return the cache whose pointer lies in the directory `scope`.

    Raises:
        InvalidName: GKM did not create a directory of this name.
    """
    return CacheRef(None if scope == CLUSTER_SCOPE else scope, name)
