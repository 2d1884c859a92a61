"""From a registry on this machine to verified files: ours, oras-py with sha256 and tarfile, skopeo with tar, the floor.

Two images: R, a real Triton cache many times over (at full size over 1 GB in over 14,000 files), and N, at full size 1
GiB, that does not compress. The floor is the sum of what cannot be left out, each stage timed alone: receive and write
the blob, hash it, decompress it, write the files. The time of a signature is that of the bench `verify`.
"""

import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import bench_verify
import pull_images
from bench_verify import VerifySize
from figures import Result
from support.registry.olareg import Olareg

HERE = Path(__file__).parent
PEERS = ("ours", "oraspy", "skopeo", "floor")
PLACES = {"tmpfs": Path("/dev/shm"), "disk": Path(tempfile.gettempdir())}


@dataclass(frozen=True)
class PullSize:
    """The images (copies of Triton's cache, bytes that do not compress), and the runs of each of CASES."""

    copies: int
    random_bytes: int
    runs: tuple[int, int, int]
    warm_ups: int
    verify: VerifySize


CASES = (("triton", "tmpfs"), ("random", "tmpfs"), ("triton", "disk"))
"""Image and file system."""
FULL = PullSize(pull_images.COPIES, random_bytes=1 << 30, runs=(5, 5, 2), warm_ups=1, verify=bench_verify.FULL)
"""A run on a disk measures the disk more than the code, and takes minutes."""
SMALLEST = PullSize(copies=1, random_bytes=10 << 20, runs=(1, 1, 1), warm_ups=0, verify=bench_verify.SMALLEST)


def run(size: PullSize) -> Result:
    """Measure all of it; each peer runs in a process of its own, in turn, so that the machine's drift affects all."""
    rows: list[dict[str, float]] = []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gkm-bench-")))
        olareg = stack.enter_context(Olareg.start(directory / "registry"))
        images = {
            image.name: image for image in pull_images.push(olareg.host, directory, size.copies, size.random_bytes)
        }
        figures: dict[str, float] = {}
        for (name, place), runs in zip(CASES, size.runs, strict=True):
            measured = _measured(olareg.host, images[name], PLACES[place], runs, size.warm_ups)
            label = f"{name}_{place}"
            rows += [{f"{label}_{figure}": value for figure, value in row.items()} for row in measured]
            figures |= {f"{label}_{figure}": value for figure, value in _figures(measured).items()}
    verified = bench_verify.run(size.verify).figures
    figures |= {
        "wall_over_floor": max(figures["triton_tmpfs_wall_over_floor"], figures["random_tmpfs_wall_over_floor"]),
        "oraspy_over_ours": figures["triton_tmpfs_oraspy_over_ours"],
        "peak_rss_mib": max(value for name, value in figures.items() if name.endswith("peak_rss_mib")),
        **{name: verified[name] for name in ("verify_p50_ms", "verify_p99_ms")},
    }
    return Result(figures, rows)


def _figures(measured: list[dict[str, float]]) -> dict[str, float]:
    """Return the result of one case."""
    figures = {
        f"{peer}_{unit}": round(median(row[f"{peer}_{unit}"] for row in measured), 2)
        for peer in PEERS
        for unit in ("s", "cpu_s")
    }
    ours = [row["ours_s"] for row in measured]
    return figures | {
        "wall_over_floor": _ratio(ours, [row["floor_s"] for row in measured]),
        "oraspy_over_ours": _ratio([row["oraspy_s"] for row in measured], ours),
        "peak_rss_mib": round(max(row["ours_rss_mib"] for row in measured), 1),
    }


def _ratio(above: list[float], below: list[float]) -> float:
    return round(median(a / b for a, b in zip(above, below, strict=True)), 2)


def _measured(host: str, image: pull_images.Image, root: Path, runs: int, warm_ups: int) -> list[dict[str, float]]:
    rows = []
    for number in range(1 - warm_ups, runs + 1):
        row: dict[str, float] = {}
        for peer in PEERS:
            with tempfile.TemporaryDirectory(prefix="gkm-pull-", dir=root, ignore_cleanup_errors=True) as directory:
                seconds, cpu, rss = _child(peer, host, image, Path(directory))
                subprocess.run(["chmod", "-R", "u+w", directory], check=True)
            row |= {f"{peer}_s": seconds, f"{peer}_cpu_s": cpu, f"{peer}_rss_mib": rss}
        which = f"run {number} of {runs}" if number > 0 else "to warm up"
        seconds_of = ", ".join(f"{peer} {row[f'{peer}_s']:.2f}" for peer in PEERS)
        sys.stderr.write(f"pull: {image.name} to {root}, {which}: {seconds_of} s\n")
        if number > 0:
            rows.append(row)
    return rows


def _child(peer: str, host: str, image: pull_images.Image, directory: Path) -> tuple[float, float, float]:
    """Run a peer in its own process; return its seconds (without the interpreter's start), its CPU, its peak memory."""
    task = {
        "peer": peer,
        "host": host,
        "name": image.name,
        "digest": image.digest,
        "layer": image.layer,
        "directory": str(directory),
    }
    words = [sys.executable, str(HERE / "pull_peer.py"), json.dumps(task)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(f"{peer} failed: {done.stderr[-800:]}")
    said = json.loads(done.stdout.splitlines()[-1])
    if said["files"] != image.files:
        raise RuntimeError(f"{peer} brought {said['files']} files, not {image.files}")
    return float(said["seconds"]), float(said["cpu"]), float(said["rss_mib"])
