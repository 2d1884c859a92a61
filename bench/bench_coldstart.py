"""The time from the start of a process to its first kernel: on an empty cache, and on a mounted one.

Real Triton, and volumes that the real gkm-csi publishes, both with a private layer; the mounted one is of an image that
`gkm cache build` made of what a first process compiled, and that is on the node already (bench/bench_pull.py measures
that way). On a machine with an NVIDIA GPU the kernels are launched there; elsewhere they are compiled for GPUs that are
not there, and nothing is launched: no context, no upload of code, no compilation of Triton's driver module. The files
of Triton itself are in the page cache. Needs root.

Both ways take turns, and begin by turns. COLDSTART_TARGETS (separated by spaces) replaces the GPUs for which is
compiled, COLDSTART_PYTHON the interpreter that has Triton.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from gkm.images.reference import Reference
from packing_report import Table
from support.csi.rig import Rig, running_rig
from support.registry.clients import plain_client
from support.registry.server import Registry
from support.triton import installation as triton
from support.triton.pods import Pod, pulled

TARGETS = tuple(os.environ.get("COLDSTART_TARGETS", "cuda:90:32 cuda:100:32 hip:gfx942:64").split())
LAUNCH = "launch"
PROGRAM = Path(__file__).with_name("coldstart_kernels.py")
SECONDS = 600.0
MOMENTS = {
    "first": "process start to the first kernel",
    "all": "process start to all kernels",
    "call": "import of Triton to the first kernel",
}
"""What is measured; `call` is the first kernel without the start of Python and the import of Triton."""

Times = Mapping[str, float]


@dataclass(frozen=True)
class ColdstartSize:
    """How many runs count, how many warm up, and how many of the program's kernels each process compiles."""

    runs: int
    warm_ups: int
    kernels: int


FULL = ColdstartSize(runs=5, warm_ups=1, kernels=7)
SMALLEST = ColdstartSize(runs=1, warm_ups=0, kernels=1)


@dataclass(frozen=True)
class ColdStart:
    """The result; `device` is the GPU on which the kernels were launched, "" if they were only compiled."""

    device: str
    targets: Sequence[str]
    rows: Sequence[Mapping[str, float]]

    @property
    def figures(self) -> Mapping[str, float]:
        """Return the median of every figure, the ratio of both ways, and 1 for `real_gpu` if it launched kernels.

        The names without a GPU are those of the first one.
        """
        medians = {name: round(median(row[name] for row in self.rows), 4) for name in self.rows[0]}
        ratios = {
            f"{target}_{moment}_ratio": round(medians[f"{target}_{moment}_empty_s"] / medians[mounted], 2)
            for target in self.targets
            for moment in MOMENTS
            if medians[mounted := f"{target}_{moment}_mounted_s"]
        }
        first = self.targets[0]
        return {
            "real_gpu": float(bool(self.device)),
            "first_kernel_cold_s": medians[f"{first}_first_empty_s"],
            "first_kernel_mounted_s": medians[f"{first}_first_mounted_s"],
            "ratio": ratios[f"{first}_first_ratio"],
            **medians,
            **ratios,
        }

    def table(self) -> str:
        """Return medians, least and largest of both ways beside each other, in seconds."""
        how = f"launched on {self.device}" if self.device else "compiled for GPUs that are not here, nothing launched"
        rows = [
            {
                "GPU": target,
                "seconds": text,
                "empty": self._spread(f"{target}_{moment}_empty_s"),
                "mounted": self._spread(f"{target}_{moment}_mounted_s"),
                "ratio": f"{self.figures[f'{target}_{moment}_ratio']:.1f}",
            }
            for target in self.targets
            for moment, text in MOMENTS.items()
        ]
        publish = f"publish of a mounted volume and its bind into the container: {self._spread('publish_mounted_s')} s"
        return f"{Table(f'kernels were {how}; median (least to largest) of {len(self.rows)} runs', rows)}\n{publish}"

    def _spread(self, name: str) -> str:
        values = [row[name] for row in self.rows]
        return f"{median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def run(size: ColdstartSize) -> ColdStart:
    """Measure on the GPU of this machine, or for GPUs that are not there."""
    with tempfile.TemporaryDirectory(prefix="gkm-bench-") as directory:
        device = str(_printed([], Path(directory), ["machine"])["device"])
    targets = {_key(target): target for target in ([LAUNCH] if device else TARGETS)}
    with running_rig() as rig, Registry.start() as registry:
        caches = {name: _image(size, rig, registry, target) for name, target in targets.items()}
        numbers = range(1 - size.warm_ups, size.runs + 1)
        rows = [_once(size, rig, targets, caches, number) for number in numbers][size.warm_ups :]
    return ColdStart(device, list(targets), rows)


def _key(target: str) -> str:
    return "gpu" if target == LAUNCH else target.replace(":", "_")


def _image(size: ColdstartSize, rig: Rig, registry: Registry, target: str) -> str:
    """Let a process fill an empty volume; return the name of the cache of the image of it, ready on the node."""
    with _volume(rig, "") as (pod, _):
        _times(size, pod, target, are_hits=False)
        name = f"{registry.host}/bench/coldstart-{_key(target).replace('_', '-')}"
        words = ["cache", "build", str(pod.inside), "--image", f"{name}:1", "--push", "--plain-http", "-o", "json"]
        built = subprocess.run(
            [sys.executable, "-m", "gkm_cli.main", *words], stdout=subprocess.PIPE, check=True, timeout=SECONDS
        )
    client = plain_client(registry.host)
    return pulled(rig, client, Reference.parse(f"{name}@{json.loads(built.stdout)['digest']}")).ref.name


def _once(
    size: ColdstartSize, rig: Rig, targets: Mapping[str, str], caches: Mapping[str, str], number: int
) -> Mapping[str, float]:
    sys.stderr.write(f"coldstart: run {number} of {size.runs}\n" if number > 0 else "coldstart: warming up\n")
    row: dict[str, float] = {}
    published = []
    for name, target in targets.items():
        ways = {"empty": "", "mounted": caches[name]}
        for way in list(ways) if number % 2 else reversed(ways):
            with _volume(rig, ways[way]) as (pod, seconds):
                times = _times(size, pod, target, are_hits=way == "mounted")
            row |= {f"{name}_{moment}_{way}_s": times[moment] for moment in MOMENTS}
            if way == "mounted":
                published.append(seconds)
    return {**row, "publish_mounted_s": median(published)}


@contextmanager
def _volume(rig: Rig, cache: str) -> Iterator[tuple[Pod, float]]:
    """Yield a pod with a private volume, without a name an empty one; and the seconds that its publish took."""
    began = time.monotonic()
    pod = Pod.start(rig, cache, readOnly="false") if cache else Pod.start(rig, "there-is-none", ifUnavailable="empty")
    seconds = time.monotonic() - began
    try:
        yield pod, seconds
    finally:
        pod.end()


def _times(size: ColdstartSize, pod: Pod, target: str, *, are_hits: bool) -> Times:
    """Run the kernels in a process of their own; return the seconds to each of MOMENTS.

    Raises:
        RuntimeError: the cache was not what the run is about: a kernel of the mounted one missed, or the reverse.
    """
    began = time.monotonic()
    found = _printed(pod.rig.namespace.command(()), pod.cache, [target, str(size.kernels)])
    if set(found["hits"]) != {are_hits}:
        raise RuntimeError(f"of {target}, {found['hits']} were hits, not {'all' if are_hits else 'none'} of them")
    first, last = found["moments"][0], found["moments"][-1]
    return {"first": first - began, "all": last - began, "call": first - found["imported"]}


def _printed(within: Sequence[str], cache: Path, arguments: Sequence[str]) -> dict[str, Any]:
    # Triton warns while this is unset, and it is part of the key of every kernel.
    environment = {**os.environ, "TRITON_CACHE_DIR": str(cache), "TRITON_DEFAULT_FP_FUSION": "1"}
    environment.pop("PYTHONPATH", None)
    python = os.environ.get("COLDSTART_PYTHON") or str(triton.python())
    command = [*within, python, "-I", str(PROGRAM), *arguments]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, timeout=SECONDS)
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed
