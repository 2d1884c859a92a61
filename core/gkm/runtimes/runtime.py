"""The row of a runtime, and the kind of a path in the directory of its cache. Pure."""

from dataclasses import dataclass

from gkm.runtimes.foreign import foreign_kind
from gkm.runtimes.keys import UNTOLD, Entries
from gkm.runtimes.layout import FileKind, Layout, Place, kind_of, place_of


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime (a program that compiles kernels) with the layout of its cache and the variables that name it.

    `name` is in images and statuses, `title` in texts. `variables` name the directory of the cache, the first one that
    the runtime reads first. `marks` is the part of `layout` that no other runtime writes: a directory with one such
    file is a cache of this runtime. `entries` describes the entries that a miss adds to the cache. `beside` names the
    runtimes for which its programs also compile, outside of this directory.
    """

    name: str
    title: str
    variables: tuple[str, ...]
    layout: Layout
    marks: Layout
    entries: Entries = UNTOLD
    beside: tuple[str, ...] = ()
    needs_private_layer: bool = False
    """Whether the program writes into its cache directory even if all kernels hit, or fails if it cannot write after a
    miss."""
    empty: tuple[tuple[str, str], ...] = ()
    """Directories that must exist even if they are empty: a pattern of the parent ("" for the top), and the name."""
    versions: tuple[str, ...] = ()
    """Programs whose version is not part of the key, so that an image must state it."""
    unmovable: str = ""
    """Why files of the kind UNMOVABLE cannot hit at another path."""
    captured: bool = True
    """Whether captures include caches of this runtime."""

    def place_of(self, path: str, *, is_directory: bool) -> Place | None:
        """Return the layout entry of a path in the runtime's cache; None if the layout does not have the path."""
        return place_of(self.layout, path, is_directory=is_directory)

    def kind_of(self, path: str, *, is_directory: bool) -> FileKind:
        """Return the kind of a file or directory at `path`, relative to the directory of the runtime's cache."""
        found, foreign = kind_of(self.layout, path, is_directory=is_directory), foreign_kind(path)
        # A file of artifacts may have the name of weights, such as `cache.pt`: its content decides.
        if foreign and not (foreign is FileKind.WEIGHTS and found is FileKind.ARTIFACTS):
            return foreign
        return found or FileKind.FOREIGN
