"""TorchInductor: graphs, generated code, and Triton's cache of each GPU. Pure.

Sources: torch/_inductor/codecache.py, torch/_inductor/runtime/cache_dir_utils.py,
torch/_functorch/_aot_autograd/autograd_cache.py, torch/_inductor/runtime/autotune_cache.py, 2.15.
docs/reference/formats.md describes each path.

A graph holds the lines of its key, one for each factor: `[<digest>] <name>: <value>` (FxGraphHashDetails.debug_lines).
"""

import re
from typing import Final

from gkm.runtimes.keys import MAX_FACTORS, Entries, Factor, Key, MissReason
from gkm.runtimes.layout import FileKind, Layout, file, folder
from gkm.runtimes.runtime import Runtime
from gkm.runtimes.triton import TRITON

_SHARD: Final = r"[a-z0-9]{2}"
_KEY: Final = r"[a-z2-7]{52}"
"""The base32 form of a SHA-256, behind a letter for its kind."""
_CONTENT: Final = r"[a-z0-9]{1,64}"
_FXGRAPH: Final = folder(r"fxgraph", folder(_SHARD, folder(_KEY, file(_CONTENT))))
_AUTOGRAD: Final = folder(r"aotautograd", folder(_KEY, file(_CONTENT)))
_CODE: Final = r"[a-z0-9_]{8,140}(?:\.[A-Za-z0-9_-]{1,40}){1,4}"
"""Generated code: `c<hash>.py`, `.cpp`, `.kernel_perf`…"""
_TUNED: Final = r"[a-z0-9_]{8,140}\.best_config"
_COMPILED: Final = r"[a-z0-9_]{8,140}(?:\.[A-Za-z0-9_-]{1,40}){0,3}\.(?:so|o|a|gch|pch)"
"""Code for the processor. Its key has the words `-march=native` (torch/_inductor/cpp_builder.py), not the processor: on
another machine it may be a hit and an illegal instruction."""

GRAPHS: Final[Layout] = (
    _FXGRAPH,
    _AUTOGRAD,
    folder(r"triton", folder(r"[0-9]{1,3}", *TRITON.layout)),
    folder(r"locks", file(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.lock", FileKind.UNCAPTURED)),
    folder(_SHARD, file(_COMPILED, FileKind.UNCAPTURED), file(_TUNED, needs=()), file(_CODE)),
)
"""The directory of graphs inside directories of other runtimes."""

GRAPH_PATH: Final = rf"(?:fxgraph/{_SHARD}|aotautograd)/{_KEY}"
_GRAPH: Final = re.compile(
    # Among several caches this one has a directory (gkm.runtimes.placement).
    rf"(?:inductor/)?(?P<entry>(?P<kind>fxgraph(?=/{_SHARD}/)|aotautograd)(?:/{_SHARD})?/{_KEY})/[^/]+",
    re.ASCII,
)
MAX_GRAPH_BYTES: Final = 1 << 20
"""Limit of bytes that are read of a graph; the lines of its key come before the compiled kernels."""
_FACTOR: Final = re.compile(
    rb"\[([a-z0-9]{4,64})\] ([a-z][a-z0-9_]{0,60}(?:\[[A-Za-z0-9_.]{1,80}\])?): ([\x20-\x7e]{0,80})"
)
_OF_GRAPH: Final = ("gm", "example_inputs", "inputs_to_check", "fx_kwargs", "user_defined", "cache_key_tag")


def key_of(graph: bytes) -> Key | None:
    """Return the key of a TorchInductor cache entry from the first bytes of its graph; None if they have no key.

    Any author may have written it.
    """
    found: dict[str, Factor] = {}
    for line in _FACTOR.finditer(graph):
        name, reason = line[2].decode(), _reason(line[2].decode())
        shown = "" if reason is MissReason.OTHER_SOURCE else line[3].decode()
        found.setdefault(name, Factor(reason, line[1].decode(), shown))
        if len(found) == MAX_FACTORS:
            break
    return found or None


def _reason(name: str) -> MissReason:
    if name == "system_info[device]":
        return MissReason.OTHER_GPU
    if name == "torch_version" or name.startswith("system_info["):
        return MissReason.OTHER_VERSION
    return MissReason.OTHER_SOURCE if name.startswith(_OF_GRAPH) else MissReason.OTHER_OPTIONS


INDUCTOR: Final = Runtime(
    name="inductor",
    title="TorchInductor",
    variables=("TORCHINDUCTOR_CACHE_DIR",),
    # A process may use one directory for Triton too.
    layout=(*GRAPHS, *TRITON.layout, file(r"[^.].*", FileKind.ARTIFACTS)),
    marks=(_FXGRAPH, _AUTOGRAD),
    entries=Entries(
        _GRAPH,
        _GRAPH,
        key_of,
        MAX_GRAPH_BYTES,
        MissReason.OTHER_SOURCE,
        "torch keys on each graph, its settings and its own sources, which it meets as it runs",
        may_truncate=True,
    ),
)
