# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201 -- run by another Python, in torch's own words
"""Run by the Python that has torch: compiles a transformer, forward and backward, and prints JSON.

$TORCHINDUCTOR_CACHE_DIR is the cache. The argument is `small` or `large`; a large one needs a GPU with 16 GiB free.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch._dynamo.utils import counters

SIZES = {"small": (2, 64, 32), "large": (8, 2048, 1024)}
"""Layers, width and length of the text."""
HEADS = 4
LARGE_BYTES = 16 << 30


class Block(torch.nn.Module):
    """Attention and a feed-forward network."""

    def __init__(self, width) -> None:
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.mixed, self.joined = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.wide, self.narrow = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.mixed(self.norms[0](x)).view(batch, length, 3, HEADS, width // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        scores = (query @ key.transpose(-1, -2) / (width // HEADS) ** 0.5).softmax(-1)
        x = x + self.joined((scores @ value).transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(torch.nn.functional.gelu(self.wide(self.norms[1](x))))


def kernels_compiled() -> list[bool]:
    """Return a list that grows with each kernel of Triton: whether it was a hit; empty without Triton."""
    hits: list[bool] = []
    try:
        from triton import knobs
    except ImportError:
        return hits
    knobs.compilation.listener = lambda *, cache_hit, **_: hits.append(cache_hit)
    return hits


def files(cache) -> set[str]:
    """Return the files of the cache."""
    return {str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_file()}


def main(size) -> None:
    """Print what happened."""
    imported = time.monotonic()
    cache = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    before = files(cache)
    on_gpu = torch.cuda.is_available()
    if size == "large" and not (on_gpu and torch.cuda.mem_get_info()[0] >= LARGE_BYTES):
        json.dump({"skipped": "needs a GPU with 16 GiB free"}, sys.stdout)
        return
    hits = kernels_compiled()
    layers, width, length = SIZES[size]
    torch.manual_seed(0)
    device = "cuda" if on_gpu else "cpu"
    model = torch.nn.Sequential(*(Block(width) for _ in range(layers))).to(device)
    text = torch.randn(2, length, width, device=device)
    loss = torch.compile(model)(text).square().mean()
    loss.backward()
    result = loss.item()
    done = time.monotonic()
    inductor, autograd = counters["inductor"], counters["aot_autograd"]
    found = {
        "device": torch.cuda.get_device_name() if on_gpu else "processor",
        "versions": {"torch": torch.__version__, "cuda": torch.version.cuda},
        "seconds": done - imported,
        "result": result,
        "graph_hits": inductor["fxgraph_cache_hit"],
        "graph_misses": inductor["fxgraph_cache_miss"],
        "autograd_hits": autograd["autograd_cache_hit"],
        "autograd_misses": autograd["autograd_cache_miss"],
        "kernel_hits": hits.count(True),
        "kernels_compiled": hits.count(False),
        "added": sorted(files(cache) - before),
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
