"""Rewrite vLLM's index of compiled graphs for another directory. Pure: bytes and names in, bytes out.

`vllm_compile_cache.py` maps (range, graph, compiler) to a handle, (key, absolute path), and vLLM opens the path: in a
cache that was moved it does not miss, it fails with FileNotFoundError (vllm-project/vllm issue 52154). As with Triton,
the file comes from an image: its names are used, its paths never.
"""

from collections.abc import Collection
from typing import Final

from gkm.mounts.relocation.literal import parse
from gkm.mounts.relocation.rewrite_result import RewriteResult, is_usable_path

MAX_BYTES: Final = 4 << 20
"""Limit of bytes of an index; it has 430 bytes for each graph, so 17 batch sizes of 62 parts have 450 KiB."""
MAX_REWRITTEN_BYTES: Final = 8 << 20
"""Limit of bytes of all directories in a rewritten index, which is in memory four times. A mount path of 1,024 bytes
adds 1 MiB to the index of 17 batch sizes."""
MISS: Final = b"{}\n"
"""An index without graphs: vLLM compiles every one."""

_HASH_COMPILER: Final = "inductor"
"""The compiler of torch before 2.8: its handle is (hash, path), and InductorAdaptor.load uses only the hash."""


def rewritten(index: bytes, directory: str, siblings: Collection[str]) -> RewriteResult:
    """Return vLLM's index with paths for a cache in `directory`, a path in the container; or `MISS`.

    `siblings` are the files and directories beside it: an artifact is one or the other (formats binary and unpacked). A
    graph whose artifact is missing is left out, so that vLLM compiles it instead of failing.
    """
    graphs = _parsed(index)
    if len(graphs) * len(ascii(directory)) > MAX_REWRITTEN_BYTES:
        return RewriteResult(MISS, complete=False)
    moved = {key: _moved(key, value, directory, siblings) for key, value in graphs.items()}
    resolved = {key: value for key, value in moved.items() if value is not None}
    if not resolved:
        return RewriteResult(MISS, complete=False)
    # ASCII, because vLLM reads it in the encoding of the container's locale.
    return RewriteResult(ascii(resolved).encode() + b"\n", complete=len(resolved) == len(graphs))


def _moved(key: object, value: object, directory: str, siblings: Collection[str]) -> object:
    """Return the value of one graph in the index, None if the graph is left out.

    Newer versions wrap the handle in a mapping, with the key under which torch shares equal graphs.
    """
    if isinstance(value, dict):
        handle = _moved(key, value.get("graph_handle"), directory, siblings)
        return None if handle is None else {**value, "graph_handle": handle}
    match key, value:
        # CompilerManager.initialize_cache fails on keys of another form.
        case (None | int() | (int(), int()), int(), str(compiler)), (str(artifact), str()):
            if compiler == _HASH_COMPILER:
                return artifact, ""
            path = f"{directory}/{artifact}"
            return (artifact, path) if artifact in siblings and is_usable_path(path) else None
    return None


def _parsed(index: bytes) -> dict[object, object]:
    if len(index) > MAX_BYTES:
        return {}
    try:
        value = parse(index.decode())
    except ValueError:  # not UTF-8, or not a literal
        return {}
    return value if isinstance(value, dict) else {}
