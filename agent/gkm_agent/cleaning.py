"""What a killed agent leaves behind, removed when the next one starts."""

from gkm.hoststate import files
from gkm.hoststate.layout import Layout
from gkm.images.entry import remove_tree


def prepare(layout: Layout) -> None:
    """Make the directories; empty what holds unfinished and withdrawn things; drop halves of replaced files.

    Call it before anything else works on the state, and only while holding the agent's lock.

    Raises:
        OSError: the state cannot be written.
    """
    layout.make()
    for directory in (layout.work, layout.trash):
        for path in directory.iterdir():
            remove_tree(path)
    for leftover in layout.caches.glob("*/*/.*.tmp"):
        leftover.unlink(missing_ok=True)
    for directory in (*layout.caches.glob("*/*"), *layout.caches.glob("*")):
        files.remove_empty(directory)
