"""SIGKILL at every step of `gkm exec` behind the pull; the next run finds the whole cache, and removes every rest."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from gkm.images.pulling import entry
from gkm.images.pulling.entry import FileList, ListedFile
from gkm_cli.cache import run_views
from gkm_cli.cache.run_store import RunStore
from support.csi.steps import killed_at, printed

TESTS = Path(__file__).resolve().parents[2]
DATA = TESTS / "data" / "triton-cache"
DIGEST = f"sha256:{'a' * 64}"


@pytest.mark.parametrize(("kind", "least"), [("view", 60), ("copy", 60), ("evict", 40)])
def test_a_kill_at_any_step_leaves_what_the_next_run_completes(tmp_path: Path, kind: str, least: int) -> None:
    # Fewer would say that the steps were not seen, not that there are none.
    assert printed(__file__, tmp_path, kind, seconds=240) > least


def main(root: Path, kind: str) -> None:
    """Kill at every step; print the number of steps."""
    fatal = 0
    while not survives(RunStore(root / str(fatal)), kind, fatal):
        fatal += 1
    sys.stdout.write(json.dumps(fatal))


def survives(store: RunStore, kind: str, fatal: int) -> bool:
    """Kill a run at a step, check what the next run finds; return whether there was no such step."""
    filled(store)
    if kind == "evict":
        run_views.view(store, DIGEST)
    died = killed_at(fatal, lambda: step(store, kind))
    if kind == "evict":
        store.make()
        found = entry.find(store.layout, DIGEST)
        assert found is None or files(found.path / entry.CONTENT) == files(DATA), "a part of the entry counts"
        store.evict(0)
        assert entry.find(store.layout, DIGEST) is None
        assert not list(store.views.iterdir())
    else:
        seen = step(store, kind)
        assert seen is not None
        assert files(seen).keys() == files(DATA).keys(), "the next run has a part"
    store.make()
    assert not [*store.layout.work.iterdir(), *store.layout.trash.iterdir()], "a rest is left"
    # The one of this process, which is alive, and its lock.
    assert len(list(store.copies.iterdir())) == (2 if kind == "copy" else 0)
    return not died


def filled(store: RunStore) -> None:
    """Publish the entry of a cache, as a pull does."""
    store.make()
    content = store.layout.work / "pull" / entry.CONTENT
    shutil.copytree(DATA, content)
    listed = [ListedFile(name, len(data), "0" * 64) for name, data in sorted(files(content).items())]
    total = sum(one.size for one in listed)
    entry.publish(store.layout, content.parent, FileList(DIGEST, "triton", total, listed), b"{}")


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def step(store: RunStore, kind: str) -> Path | None:
    """Do what a run does behind the pull."""
    store.make()
    if kind == "evict":
        store.evict(0)
        return None
    store.use(DIGEST)
    return run_views.view(store, DIGEST) if kind == "view" else run_views.private_copy(store, DIGEST)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
