"""Rewrite a group file of a Triton cache for another directory. Pure: bytes and names in, bytes out.

Triton stores each kernel in its own directory. A group file there, `__grp__<kernel>.json`, lists the kernel's
files with the absolute paths of their compilation, and Triton opens those paths (FileCacheManager in
triton/runtime/cache.py, 3.9). The file comes from an image and is not trusted: only the names in it are used, never a
path, and a name is used only if such a file is beside the group file (docs/design/relocation.md).
"""

import json
from collections.abc import Collection, Iterator
from typing import Final

from gkm.mounts.relocation.rewrite_result import RewriteResult, is_usable_path
from gkm.runtimes.triton import GROUP

MAX_BYTES: Final = 64 << 10
"""Limit of bytes of a group file. Seven children take about 1 KiB; one path has at most 4 KiB."""
MAX_CHILDREN: Final = 64
MISS: Final = b"{}\n"
"""A group file without children: get_group returns None, and Triton compiles as if there were no group file.

The file itself must exist, or the original would show through from the layer below.
"""


def rewritten(group: bytes, directory: str, siblings: Collection[str]) -> RewriteResult:
    """Return a Triton group file with paths for `directory`, its path in the container; or `MISS`.

    `siblings` are the regular files beside the group file. One missing child makes the whole group a miss, as in
    get_group: a kernel with only some of its files fails in CompiledKernel (KeyError), a miss compiles. The order is
    preserved, because Triton takes the first child that ends in ".json" for the metadata. The text is ASCII, because
    Triton reads it in the encoding of the container's locale.
    """
    children: dict[str, str] = {}
    for name in _names(group):
        path = f"{directory}/{name}"
        if name not in siblings or name.startswith(GROUP) or not is_usable_path(path):
            return RewriteResult(MISS, complete=False)
        children[name] = path
    if not children:
        return RewriteResult(MISS, complete=False)
    return RewriteResult(json.dumps({"child_paths": children}).encode() + b"\n", complete=True)


def _names(group: bytes) -> Iterator[str]:
    """Yield the names of the children; no names where Triton would not write such a file.

    RemoteCacheManager.put_group writes a list instead of a mapping; the file system's get_group would fail on it
    (AttributeError), so relocation also repairs such a cache.
    """
    if len(group) > MAX_BYTES:
        return
    try:
        value = json.loads(group)
    except (ValueError, RecursionError):
        return
    children = value.get("child_paths") if isinstance(value, dict) else None
    if isinstance(children, dict | list) and len(children) <= MAX_CHILDREN:
        yield from (name if isinstance(name, str) else "" for name in children)
