"""A cache that real TorchInductor fills and reads, here or in a mount namespace."""

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from support.host.waiting import scaled
from support.torch import installation as torch

PROGRAM = Path(__file__).resolve().parent / "programs" / "compile_model.py"
SETTINGS = {
    # One thread, no trial programs for vector instructions, no precompiled header: a third of the time. All are part of
    # the key of a graph.
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TORCHINDUCTOR_VEC_ISA_OK": "0",
    "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
}


class TorchFailed(Exception):
    """The program ended with an error; the message is what it printed."""


@dataclass(frozen=True)
class TorchCounters:
    """What torch counted, of graphs (forward and backward) and of AOT autograd, and what the model returned."""

    graph_hits: int
    graph_misses: int
    autograd_hits: int
    autograd_misses: int
    results: tuple[float, float]


HIT = (2, 0, 1, 0)
MISS = (0, 2, 0, 1)


def counted(counters: TorchCounters) -> tuple[int, int, int, int]:
    """Return the four counters, to compare with HIT and MISS."""
    return counters.graph_hits, counters.graph_misses, counters.autograd_hits, counters.autograd_misses


def compiled(cache: Path, *options: object, within: Sequence[str] = ()) -> TorchCounters:
    """Have torch compile the model with `cache` as its cache; `within` is put before the command line.

    Raises:
        TorchFailed: with Python's traceback.
    """
    command = [*within, str(torch.python()), "-I", str(PROGRAM), *map(str, options)]
    environment = {**os.environ, **SETTINGS, "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    run = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=scaled(600))
    if run.returncode:
        raise TorchFailed(run.stderr)
    return parse(run.stdout)


def parse(printed: str) -> TorchCounters:
    """Return the counters that the program printed."""
    found = json.loads(printed)
    inductor, autograd = found["inductor"], found["aot_autograd"]
    return TorchCounters(
        inductor.get("fxgraph_cache_hit", 0),
        inductor.get("fxgraph_cache_miss", 0),
        autograd.get("autograd_cache_hit", 0),
        autograd.get("autograd_cache_miss", 0),
        (found["sum"], found["gradient"]),
    )
