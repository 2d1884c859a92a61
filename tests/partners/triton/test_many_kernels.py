"""A cache as large as those of real models: 2,000 kernels, each in its own directory."""

import json
from pathlib import Path

import pytest
from gkm.mounts.relocation.mount_path import MountPath
from gkm.mounts.relocation.tree_store import RelocationLayer
from support.csi.rig import Rig
from support.triton.pods import Pod

pytestmark = pytest.mark.mounts

KERNELS = 2_000
CHILDREN = ("kernel.json", "kernel.cubin")


def cache_of(kernels: int) -> dict[str, str]:
    """Return the files of a cache that was compiled at another path."""
    content: dict[str, str] = {}
    for number in range(kernels):
        key = f"KERNEL{number:046d}"
        children = {name: f"/built/elsewhere/{key}/{name}" for name in CHILDREN}
        content[f"{key}/__grp__kernel.json"] = json.dumps({"child_paths": children})
        content.update({f"{key}/{name}": f"{name} of {number}" for name in CHILDREN})
    return content


def modes_below(top: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in (top, *top.rglob("*")) if path.is_dir()}


def test_every_group_names_the_mount_path_and_every_directory_can_be_written(rig: Rig) -> None:
    content = cache_of(KERNELS)
    ref = rig.ready(content)
    pod = Pod.start(rig, ref.name, readOnly="false")

    groups = [name for name in content if "/__grp__" in name]
    assert len(groups) == KERNELS
    for name in groups:
        directory = f"{pod.cache}/{name.partition('/')[0]}"
        named = json.loads((pod.inside / name).read_text())
        assert named == {"child_paths": {child: f"{directory}/{child}" for child in CHILDREN}}
    others = {name: text for name, text in content.items() if name not in groups}
    assert {name: (pod.inside / name).read_text() for name in others} == others
    assert pod.run_as_another('for key in . *; do : > "$key/new"; done') == ""
    assert len(list(pod.inside.glob("*/new"))) == KERNELS


def test_the_prepared_tree_has_directories_and_groups_and_serves_every_later_volume(rig: Rig) -> None:
    content = cache_of(KERNELS)
    ref = rig.ready(content)
    first, target = rig.volume()
    attributes = {"cacheName": ref.name, "readOnly": "false", "mountPath": "/models/cache"}
    rig.client.publish(first, target, attributes)

    place = rig.files.layout.relocated_in_memory(rig.record(first).digest)
    made = place / RelocationLayer(MountPath("/models/cache"), is_writable=True).key
    tree = made / "tree"
    assert {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()} == {
        name for name in content if "/__grp__" in name
    }
    assert len([path for path in tree.rglob("*") if path.is_dir()]) == KERNELS
    assert modes_below(tree) == {0o777}
    assert modes_below(rig.files.layout.entry(rig.record(first).digest) / "cache") == {0o555}

    inodes = {path: path.stat().st_ino for path in place.rglob("*")}
    later, other_target = rig.volume()
    rig.client.publish(later, other_target, attributes)
    assert {path: path.stat().st_ino for path in place.rglob("*")} == inodes
