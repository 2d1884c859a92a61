"""The one kind of file in a cache of TorchInductor that names paths which are opened: Triton's group files inside."""

import json
from pathlib import Path

from support.images.inductor import KERNEL, directory
from support.triton.cache import relocated


def test_group_files_below_the_directory_of_a_gpu_name_the_mount_and_nothing_else_is_rewritten(tmp_path: Path) -> None:
    cache = directory(tmp_path / "cache", mount="/root/of/the/builder")
    tree = relocated(cache, Path("/models/cache"), tmp_path / "trees")
    (group,) = (path for path in tree.rglob("*") if path.is_file())
    assert group.relative_to(tree) == Path("triton/0", KERNEL, "__grp__add.json")
    paths = json.loads(group.read_text())["child_paths"]
    assert paths == {name: f"/models/cache/triton/0/{KERNEL}/{name}" for name in ("add.json", "add.ptx", "add.cubin")}
