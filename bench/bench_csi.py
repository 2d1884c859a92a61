"""The CSI process: readiness, memory, and the times of its calls, beside a Go driver that does nothing.

The client is Python and runs on the same machine: its own part of a call is in every figure, in those of the Go driver
too. Each run starts both drivers anew. RUNS of them (5) come after one that warms up; PAIRS (5,000) says over how many
publishes and unpublishes the growth of memory is looked at, once, after everything else.
"""

import os
import sys
from statistics import median

import csi_at_once
import csi_crowd
import csi_node
from csi_calls import Times, Volume
from csi_node import Node
from figures import Result
from support.host import private_mounts

RUNS = int(os.environ.get("RUNS", "5"))
PAIRS = int(os.environ.get("PAIRS", "5000"))
BATCHES, BATCH = 10, 30
"""Batches of both drivers alternate, so that other load on the machine affects both."""
PLAIN = {"cacheName": "llama"}
PRIVATE = {"cacheName": "llama", "readOnly": "false", "sizeLimit": "64Mi"}
AT_PATH = {"cacheName": "many", "mountPath": "/root/.triton/cache"}
PARTS, SETTLED = 20, 2
"""The bench reads the memory after each part; it settles during the first parts, and growth counts from then on."""


def run() -> Result:
    """Measure; the first of the runs warms up and is not counted."""
    private_mounts.enter()
    rows = [_once(number) for number in range(RUNS + 1)][1:]
    result = Result.of(rows)
    return Result({**result.figures, **_growth()}, rows)


def _once(number: int) -> dict[str, float]:
    _print_progress(f"run {number} of {RUNS}" if number else "warming up")
    with csi_node.node() as node:
        idle = {"ready_s": node.ours.ready_s, "idle_rss_mib": node.ours.rss_mib(), "noop_rss_mib": node.noop.rss_mib()}
        figures = {**idle, **_beside_noop(node), **_of_kind(node, "private_", PRIVATE)}
        # Thousands of new files: neither they nor what the bench itself wrote before may be in the way of what follows.
        os.sync()
        figures["first_relocation_s"] = node.ours.caller.pairs(node.volumes(1, AT_PATH)).publish[0]
        os.sync()
        figures |= _of_kind(node, "mount_path_", AT_PATH)
        for part in (
            csi_crowd.of_one_cache,
            csi_crowd.of_many_caches,
            csi_at_once.different_volumes,
            csi_at_once.shared_volume,
        ):
            _print_progress(f"  {part.__module__}: {part.__name__}")
            figures |= part(node)
        return figures | {"rss_at_the_end_mib": node.ours.rss_mib()}


def _of_kind(node: Node, prefix: str, attributes: dict[str, str]) -> dict[str, float]:
    node.ours.caller.pairs(node.volumes(BATCH, attributes))
    return node.ours.caller.pairs(node.volumes(BATCHES * BATCH, attributes)).figures(prefix)


def _beside_noop(node: Node) -> dict[str, float]:
    """Send the same calls to both drivers."""
    drivers = (node.ours, node.noop)
    for driver in drivers:
        driver.caller.pairs(node.volumes(BATCH, PLAIN))
    times = (Times(), Times())
    probes: tuple[list[float], list[float]] = ([], [])
    used = [-driver.cpu_s() for driver in drivers]
    for _ in range(BATCHES):
        for driver, into in zip(drivers, times, strict=True):
            driver.caller.pairs(node.volumes(BATCH, PLAIN), into)
    used = [before + driver.cpu_s() for before, driver in zip(used, drivers, strict=True)]
    for _ in range(BATCHES):
        for driver, probed in zip(drivers, probes, strict=True):
            probed.extend(driver.caller.probe() for _ in range(BATCH))
    ours, noop = (each.figures() for each in times)
    return {
        **ours,
        **{f"noop_{name}": value for name, value in noop.items()},
        "cpu_ms_per_pair": 1000 * used[0] / (BATCHES * BATCH),
        "noop_cpu_ms_per_pair": 1000 * used[1] / (BATCHES * BATCH),
        "probe_p50_ms": 1000 * median(probes[0]),
        "noop_probe_p50_ms": 1000 * median(probes[1]),
        "ratio_to_go_noop": ours["publish_p50_ms"] / noop["publish_p50_ms"],
        "unpublish_ratio_to_go_noop": ours["unpublish_p50_ms"] / noop["unpublish_p50_ms"],
        "probe_ratio_to_go_noop": median(probes[0]) / median(probes[1]),
    }


def _growth() -> dict[str, float]:
    """Return the memory that PAIRS publishes and unpublishes of every kind leave in the process."""
    part, rss, descriptors = PAIRS // PARTS, [], []
    with csi_node.node() as node:
        for done in range(1, PARTS + 1):
            node.ours.caller.pairs(_mixed(node, part))
            rss.append(node.ours.rss_mib())
            descriptors.append(node.ours.descriptors())
            _print_progress(f"{done * part} of {PAIRS} pairs: {rss[-1]:.1f} MiB, {descriptors[-1]} descriptors")
    return {
        "pairs": float(part * PARTS),
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
