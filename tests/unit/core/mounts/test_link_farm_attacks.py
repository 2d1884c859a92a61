"""Root of a user namespace attacks its volume: each attack ends as its row states, and the store stays as it was."""

from pathlib import Path

import pytest
from support.csi import mounting
from support.csi.attacks import ATTACKS, PRIVATE, READ_ONLY

pytestmark = pytest.mark.mounts

PRELUDE = """
import hashlib
from gkm.mounts import link_farm
from gkm.mounts.relocation.mount_path import MountPath
from gkm.mounts.relocation.tree_store import RelocationLayer, relocate
from support.csi import attacks, pod_in_user_namespace
from support.csi.nodes import NodeFiles

files = NodeFiles(root)
files.layout.make_directories()
digest = files.entry(attacks.CONTENT)
store = files.layout.entry(digest) / "cache"
target.mkdir(parents=True)
scratch = root / "scratch"
scratch.mkdir()

def state():
    return {str(path): seen(path) for path in [files.layout.state, *files.layout.state.rglob("*")]}

def seen(path):
    status = path.lstat()
    content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    times = status.st_mtime_ns, status.st_ctime_ns
    return status.st_mode, status.st_uid, status.st_gid, status.st_nlink, status.st_size, times, content

def mount(private):
    with safe_open.open_directory(store, ".") as entry, safe_open.open_directory(files.layout.empty, ".") as empty:
        layer = RelocationLayer(MountPath("/cache"), is_writable=private)
        tree = relocate(entry, layer, files.layout.relocated(digest))
        with safe_open.open_directory(tree, ".") as top, safe_open.open_directory(target, ".") as point:
            size = 1 << 20 if private else None
            link_farm.mount((top, entry, empty), point, "gkm:csi-1@sha256:00", scratch=scratch, size=size)

def reached(form):
    outcomes = pod_in_user_namespace.attacked(target)
    return {name: found for name, found in outcomes.items() if found != attacks.ATTACKS[name].expected(form)}
"""


@pytest.mark.parametrize("form", [READ_ONLY, PRIVATE])
def test_each_attack_ends_as_stated_and_changes_nothing_of_the_store(tmp_path: Path, form: str) -> None:
    mounting.inside(
        tmp_path,
        PRELUDE,
        f"""
        form = {form!r}
        mount(private=form == attacks.PRIVATE)
        before = state()
        assert len(before) > 20
        assert reached(form) == {{}}
        assert state() == before
        """,
    )


def test_the_same_attacks_change_a_store_whose_own_ids_are_mapped(tmp_path: Path) -> None:
    mounting.inside(
        tmp_path,
        PRELUDE,
        """
        before = state()
        outcomes = pod_in_user_namespace.attacked(store)
        done = {name for name, found in outcomes.items() if found == attacks.DONE}
        assert {"write", "chmod a file", "remove a file"} <= done, done
        after = state()
        changed = {path for path, found in before.items() if after.get(path) != found}
        assert str(store / "key" / "kernel.bin") in changed
        """,
    )


def test_there_are_enough_attacks_and_each_has_its_reason() -> None:
    refused = [attack for attack in ATTACKS.values() if attack.read_only != "done"]
    assert len(refused) >= 40
    assert all(attack.why for attack in ATTACKS.values())
