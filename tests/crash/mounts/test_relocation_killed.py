"""SIGKILL at every step of writing a tree; the next process finds a complete tree or none, and no leftovers."""

import json
import os
import sys
from pathlib import Path

from support.csi.steps import killed_at, printed

TESTS = Path(__file__).resolve().parents[2]
DATA = TESTS / "data" / "triton-cache"
KINDS = ("first", "after a reboot", "in memory", "too large for memory")
ROOM = 16 << 20


def test_a_kill_at_any_step_leaves_a_complete_tree_or_none(tmp_path: Path) -> None:
    steps = printed(__file__, tmp_path)
    # Fewer would say that the steps were not seen, not that there are none.
    assert steps["first"] > 25
    assert steps["after a reboot"] > steps["first"]
    assert steps["in memory"] > 25
    assert steps["too large for memory"] > steps["first"]


def main(root: Path) -> None:
    """Kill at every step; print the number of steps."""
    from gkm.mounts.relocation import tree_store  # noqa: PLC0415
    from gkm.mounts.relocation.mount_path import MountPath  # noqa: PLC0415
    from gkm.mounts.relocation.tree_store import RelocationLayer  # noqa: PLC0415

    path, neighbour = MountPath("/cache"), MountPath("/neighbour")
    content = os.open(DATA, os.O_PATH | os.O_DIRECTORY)
    boot = root / "boot_id"
    tree_store._BOOT = boot  # type: ignore[misc]

    def files(tree: Path) -> dict[str, bytes]:
        return {str(file.relative_to(tree)): file.read_bytes() for file in sorted(tree.glob("*/*"))}

    boot.write_text("first")
    whole = files(tree_store.relocate(content, RelocationLayer(path), root / "whole"))

    def survives(kind: str, fatal: int) -> bool:
        place = root / f"{kind}-{fatal}"
        memory = root / f"{kind}-{fatal}-in-memory" / "0123" if "memory" in kind else None
        roots = [memory, place] if memory else [place]
        boot.write_text("first")
        tree_store.MAX_TREE_MEMORY = ROOM  # type: ignore[misc]
        beside = tree_store.relocate(content, RelocationLayer(neighbour), place, memory=memory)
        if kind == "after a reboot":
            tree_store.relocate(content, RelocationLayer(path), place)
            boot.write_text("second")
        elif kind == "too large for memory":
            tree_store.MAX_TREE_MEMORY = 10_000  # type: ignore[misc]  # it ends in the second of its two files
        died = killed_at(fatal, lambda: tree_store.relocate(content, RelocationLayer(path), place, memory=memory))
        seen = tree_store._find(roots, RelocationLayer(path), boot.read_text())
        assert seen is None or files(seen) == whole, "a tree counts and is not whole"
        if memory and fatal % 2:
            tree_store.remove_unfinished(memory.parent)
            assert not list(memory.glob(".tmp-*")), "a start leaves a rest in memory"
        found = tree_store.relocate(content, RelocationLayer(path), place, memory=memory)
        assert files(found) == whole
        assert (found.parent.parent == memory) == (kind == "in memory")
        # A death after the last step leaves the tree of the earlier boot on its way out: the next making removes it.
        tree_store.relocate(content, RelocationLayer(MountPath("/third")), place, memory=memory)
        assert not [rest for each in roots for rest in each.glob(".tmp-*")], "a rest is left"
        assert files(beside), "the neighbour is touched"
        return not died

    steps = {kind: next(fatal for fatal in range(500) if survives(kind, fatal)) for kind in KINDS}
    print(json.dumps(steps))  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
