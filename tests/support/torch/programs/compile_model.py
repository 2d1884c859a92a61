# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201 -- run by another Python, in torch's own words
"""Run by the Python that has torch: compiles a small model, forward and backward, and prints torch's counters as JSON.

$TORCHINDUCTOR_CACHE_DIR is the cache. `--save FILE` writes torch.compiler.save_cache_artifacts(), `--load FILE` reads
such a file first.
"""

import argparse
import json
import sys
from pathlib import Path

import torch
from torch._dynamo.utils import counters


def model(x, weight):
    """Return a scalar, so that backward needs no gradient."""
    return torch.nn.functional.gelu(x * weight).sum()


def main() -> None:
    """Print {"inductor": {…}, "aot_autograd": {…}, "sum": …}."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--save")
    parser.add_argument("--load")
    options = parser.parse_args()
    if options.load:
        torch.compiler.load_cache_artifacts(Path(options.load).read_bytes())
    x = torch.arange(options.rows * 32, dtype=torch.float32).reshape(options.rows, 32) / 100
    weight = torch.ones(options.rows, 32, requires_grad=True)
    result = torch.compile(model)(x, weight)
    result.backward()
    if options.save:
        Path(options.save).write_bytes(torch.compiler.save_cache_artifacts()[0])
    found = {name: dict(counters[name]) for name in ("inductor", "aot_autograd")}
    json.dump({**found, "sum": result.item(), "gradient": weight.grad.sum().item()}, sys.stdout)


if __name__ == "__main__":
    main()
