"""SIGKILL at every step of an eviction while a volume comes that uses the tree; the tree of a volume stays."""

import json
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path

from support.csi.steps import killed_at, printed

TESTS = Path(__file__).resolve().parents[2]
DATA = TESTS / "data" / "triton-cache"
GOES, COMES, LATER = "/goes", "/comes", ("/third", "/fourth")


def test_a_kill_at_any_step_of_an_eviction_leaves_the_tree_of_a_volume(tmp_path: Path) -> None:
    # Fewer would say that the steps were not seen, not that there are none.
    assert printed(__file__, tmp_path) > 50


def main(root: Path) -> None:
    """Kill at every step; print the number of steps."""
    from gkm.mounts.relocation import tree_store  # noqa: PLC0415
    from gkm.mounts.relocation.mount_path import MountPath  # noqa: PLC0415
    from gkm.mounts.relocation.tree_limits import Uses  # noqa: PLC0415
    from gkm.mounts.relocation.tree_store import RelocationInProgress, RelocationLayer  # noqa: PLC0415

    content = os.open(DATA, os.O_PATH | os.O_DIRECTORY)
    tree_store.MAX_TREES = 1  # type: ignore[attr-defined]
    layer = RelocationLayer(MountPath(GOES))

    def evict(disk: Path, memory: Path, tree: int, found_it: Path) -> None:
        """Write another tree; in the middle, a volume is recorded and looks for the tree that goes."""
        recorded: list[str] = []
        looks = iter(("share", "eviction"))

        def volume() -> None:
            recorded.append(layer.key)
            with suppress(RelocationInProgress, FileNotFoundError):
                found = tree_store.relocate(content, layer, disk, lambda: Uses(recorded), memory)
                if os.path.samestat(found.stat(), os.fstat(tree)):
                    found_it.touch()

        comes = threading.Thread(target=volume)

        def in_use() -> Uses:
            seen = Uses(tuple(recorded))
            if next(looks, "") == "eviction":
                comes.start()
                comes.join(0.05)  # it ends, or waits for the end of the eviction
            return seen

        tree_store.relocate(content, RelocationLayer(MountPath(COMES)), disk, in_use, memory)
        comes.join()

    def survives(fatal: int) -> bool:
        disk, memory, found_it = root / f"{fatal}-disk", root / f"{fatal}-memory" / "0123", root / f"{fatal}-found"
        tree = os.open(tree_store.relocate(content, layer, disk, memory=memory), os.O_RDONLY)
        died = killed_at(fatal, lambda: evict(disk, memory, tree, found_it))
        tree_store.remove_unfinished(memory.parent)
        used = Uses([layer.key] if found_it.exists() else [])
        for path in LATER:
            tree_store.relocate(content, RelocationLayer(MountPath(path)), disk, lambda: used, memory)
        assert not found_it.exists() or any(Path(f"/dev/fd/{tree}").iterdir()), "the tree of a volume is lost"
        assert not list(memory.glob(".tmp-*")), "a rest is left"
        os.close(tree)
        return not died

    print(json.dumps(next(fatal for fatal in range(500) if survives(fatal))))  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
