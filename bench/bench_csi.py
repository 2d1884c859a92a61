"""The CSI process: readiness, memory, and the times of its calls, beside a Go driver that does nothing.

The client is Python and runs on the same machine: its own part of a call is in every figure, in those of the Go driver
too. Each run starts both drivers anew. The growth of memory is looked at once, after everything else. Names of figures
have the number of volumes of the full size.
"""

import os
import sys
from dataclasses import dataclass
from statistics import median

import csi_at_once
import csi_crowd
import csi_node
from csi_at_once import CallsAtOnce
from csi_calls import Times, Volume
from csi_crowd import Crowd
from csi_node import Node
from figures import Result
from support.host import private_mounts

PLAIN = {"cacheName": "llama"}
PRIVATE = {"cacheName": "llama", "readOnly": "false", "sizeLimit": "64Mi"}
AT_PATH = {"cacheName": "many", "mountPath": "/root/.triton/cache"}
NAMES = (16, 1856)
"""Names at the top of the caches that pods in user namespaces mount; figures have these numbers."""
SETTLED = 2
"""The memory settles during the first parts, and its growth counts from then on."""


@dataclass(frozen=True)
class CsiSize:
    """How many runs count and how many warm up, and the load of each."""

    runs: int
    warm_ups: int
    kernels: int
    """Of the largest cache."""
    names: tuple[int, int]
    """As NAMES."""
    batches: int
    batch: int
    """Pairs of publish and unpublish. Batches of both drivers alternate, so that other load affects both."""
    crowd: Crowd
    calls: CallsAtOnce
    pairs: int
    """Over which the growth of memory is looked at."""
    parts: int
    """Of these pairs: the bench reads the memory after each."""


FULL = CsiSize(
    5, 1, 2000, NAMES, batches=10, batch=30, crowd=Crowd(500, 200), calls=CallsAtOnce(64, 2000), pairs=5000, parts=20
)
SMALLEST = CsiSize(1, 0, 20, (2, 5), batches=1, batch=3, crowd=Crowd(5, 2), calls=CallsAtOnce(4, 20), pairs=50, parts=5)


def run(size: CsiSize) -> Result:
    """Measure."""
    private_mounts.enter()
    rows = [_once(size, number) for number in range(1 - size.warm_ups, size.runs + 1)][size.warm_ups :]
    result = Result.of(rows)
    return Result({**result.figures, **_growth(size)}, rows)


def _once(size: CsiSize, number: int) -> dict[str, float]:
    _print_progress(f"run {number} of {size.runs}" if number > 0 else "warming up")
    with csi_node.node(size.kernels, size.names) as node:
        idle = {"ready_s": node.ours.ready_s, "idle_rss_mib": node.ours.rss_mib(), "noop_rss_mib": node.noop.rss_mib()}
        figures = {**idle, **_beside_noop(size, node), **_of_kind(size, node, "private_", PRIVATE)}
        # Thousands of new files: neither they nor what the bench itself wrote before may be in the way of what follows.
        os.sync()
        figures["first_relocation_s"] = node.ours.caller.pairs(node.volumes(1, AT_PATH)).publish[0]
        os.sync()
        figures |= _of_kind(size, node, "mount_path_", AT_PATH)
        figures |= _in_user_namespaces(size, node)
        _print_progress("  beside many volumes")
        figures |= csi_crowd.of_one_cache(node, size.crowd) | csi_crowd.of_many_caches(node, size.crowd)
        _print_progress("  many calls at once")
        figures |= csi_at_once.different_volumes(node, size.calls) | csi_at_once.shared_volume(node, size.calls)
        return figures | {"rss_at_the_end_mib": node.ours.rss_mib()}


def _in_user_namespaces(size: CsiSize, node: Node) -> dict[str, float]:
    """Mount caches with few and with many names at the top, whose rewritten files are there."""
    figures: dict[str, float] = {}
    for number, names in zip(NAMES, size.names, strict=True):
        attributes = {"cacheName": f"names-{names}", "mountPath": "/cache", "userNamespace": "true"}
        for form, read_only in (("", "true"), ("private_", "false")):
            figures |= _of_kind(size, node, f"mapped_{number}_{form}", attributes | {"readOnly": read_only})
    return figures


def _of_kind(size: CsiSize, node: Node, prefix: str, attributes: dict[str, str]) -> dict[str, float]:
    node.ours.caller.pairs(node.volumes(size.batch, attributes))
    return node.ours.caller.pairs(node.volumes(size.batches * size.batch, attributes)).figures(prefix)


def _beside_noop(size: CsiSize, node: Node) -> dict[str, float]:
    """Send the same calls to both drivers."""
    drivers = (node.ours, node.noop)
    for driver in drivers:
        driver.caller.pairs(node.volumes(size.batch, PLAIN))
    times = (Times(), Times())
    probes: tuple[list[float], list[float]] = ([], [])
    used = [-driver.cpu_s() for driver in drivers]
    for _ in range(size.batches):
        for driver, into in zip(drivers, times, strict=True):
            driver.caller.pairs(node.volumes(size.batch, PLAIN), into)
    used = [before + driver.cpu_s() for before, driver in zip(used, drivers, strict=True)]
    for _ in range(size.batches):
        for driver, probed in zip(drivers, probes, strict=True):
            probed.extend(driver.caller.probe() for _ in range(size.batch))
    ours, noop = (each.figures() for each in times)
    return {
        **ours,
        **{f"noop_{name}": value for name, value in noop.items()},
        "cpu_ms_per_pair": 1000 * used[0] / (size.batches * size.batch),
        "noop_cpu_ms_per_pair": 1000 * used[1] / (size.batches * size.batch),
        "probe_p50_ms": 1000 * median(probes[0]),
        "noop_probe_p50_ms": 1000 * median(probes[1]),
        "ratio_to_go_noop": ours["publish_p50_ms"] / noop["publish_p50_ms"],
        "unpublish_ratio_to_go_noop": ours["unpublish_p50_ms"] / noop["unpublish_p50_ms"],
        "probe_ratio_to_go_noop": median(probes[0]) / median(probes[1]),
    }


def _growth(size: CsiSize) -> dict[str, float]:
    """Return the memory that publishes and unpublishes of every kind leave in the process."""
    part, rss, descriptors = size.pairs // size.parts, [], []
    with csi_node.node(size.kernels) as node:
        for done in range(1, size.parts + 1):
            node.ours.caller.pairs(_mixed(node, part))
            rss.append(node.ours.rss_mib())
            descriptors.append(node.ours.descriptors())
            _print_progress(f"{done * part} of {size.pairs} pairs: {rss[-1]:.1f} MiB, {descriptors[-1]} descriptors")
    return {
        "pairs": float(part * size.parts),
        "rss_settled_mib": round(rss[SETTLED - 1], 3),
        "rss_after_pairs_mib": round(rss[-1], 3),
        "rss_growth_mib": round(rss[-1] - rss[SETTLED - 1], 3),
        "descriptor_growth": float(descriptors[-1] - descriptors[SETTLED - 1]),
    }


def _mixed(node: Node, number: int) -> list[Volume]:
    kinds = [node.volumes(-(-number // 3), attributes) for attributes in (PLAIN, PRIVATE, AT_PATH)]
    return [volume for together in zip(*kinds, strict=True) for volume in together][:number]


def _print_progress(text: str) -> None:
    sys.stderr.write(f"csi: {text}\n")
    sys.stderr.flush()
