"""Where everything lies: the one place that joins names to paths (docs/design/node-state.md)."""

from dataclasses import dataclass
from pathlib import Path

from gkm.hoststate import names
from gkm.hoststate.names import CLUSTER_SCOPE, CacheRef

CAPTURED_FILE = "captured.json"
"""In the directory of what a pod added to its volume: whose it was, and how much."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths of one node. `state` survives a reboot, `run` does not."""

    state: Path = Path("/var/lib/gkm")
    run: Path = Path("/run/gkm")

    @property
    def store(self) -> Path:
        """Return the directory of the entries."""
        return self.state / "store" / "sha256"

    @property
    def trash(self) -> Path:
        """Return where entries go before they are deleted: same file system, so one rename withdraws an entry."""
        return self.state / "trash"

    @property
    def work(self) -> Path:
        """Return where extractions are prepared."""
        return self.state / "work"

    @property
    def blobs(self) -> Path:
        """Return where blobs lie as registries sent them, whole or in part; also after a restart."""
        return self.state / "blobs"

    def relocated(self, digest: str) -> Path:
        """Return where the files of an entry lie that name the path it is mounted at, by that path."""
        return self.state / "relocated" / names.digest(digest).removeprefix("sha256:")

    @property
    def empty(self) -> Path:
        """Return an empty directory: an overlay without an upper layer wants two lower ones."""
        return self.state / "empty"

    @property
    def caches(self) -> Path:
        """Return the directory of the pointers."""
        return self.state / "caches"

    @property
    def volumes(self) -> Path:
        """Return the directory of the volume records."""
        return self.run / "volumes"

    @property
    def layers(self) -> Path:
        """Return the directory in which private layers are put together; between two publishes it is empty."""
        return self.run / "layers"

    @property
    def captured(self) -> Path:
        """Return the directory of what pods added to their volumes, until the agent removes it.

        Each volume's has a directory of its own, with CAPTURED_FILE in it to say whose it was.
        """
        return self.state / "captured"

    @property
    def usage(self) -> Path:
        """Return the directory of the derived usage files."""
        return self.run / "usage"

    def entry(self, digest: str) -> Path:
        """Return the directory of one store entry: `cache/` is what pods see, `files.json` what it must hold."""
        return self.state.joinpath("store", "sha256", names.digest(digest).removeprefix("sha256:"))

    def entry_lock(self, digest: str) -> Path:
        """Return the lock file of an entry; it lies outside the entry, which is sealed and renamed as a whole."""
        return self.state / "locks" / names.digest(digest).removeprefix("sha256:")

    def pointer(self, ref: CacheRef) -> Path:
        """Return the file that says what a cache object points to on this node."""
        # In one step: a turn of the agent asks for it several times for each of hundreds of caches.
        return self.state.joinpath("caches", ref.scope, ref.name, "cache.json")

    def volume_record(self, volume_id: str) -> Path:
        """Return THE record of a mounted volume."""
        return self.volumes / names.volume_id(volume_id) / "record.json"

    def usage_file(self, ref: CacheRef) -> Path:
        """Return the usage file of a cache, derived from the records."""
        return self.usage / ref.scope / ref.name / "usage.json"

    def waiting_file(self, ref: CacheRef) -> Path:
        """Return the file whose age says when a pod last waited for a cache."""
        return self.run / "waiting" / ref.scope / ref.name

    def make_directories(self) -> None:
        """Make the directories; idempotent, and each process may be the first.

        Raises:
            OSError: the roots cannot be written.
        """
        for directory in (self.store, self.trash, self.work, self.empty, self.caches, self.state / "locks"):
            directory.mkdir(parents=True, exist_ok=True)
        for directory in (self.volumes, self.usage, self.layers):
            directory.mkdir(parents=True, exist_ok=True)


def ref_of_scope(scope: str, name: str) -> CacheRef:
    """Return the reference whose pointer lies in `scope`.

    Raises:
        InvalidName: the directory was not made by us.
    """
    return CacheRef(None if scope == CLUSTER_SCOPE else scope, name)
