"""Kernels that a program compiled beside a mounted cache, as the real process reports and counts them."""

import json
from pathlib import Path
from typing import Any

import pytest
from gkm.hoststate import counters, kernel_misses
from gkm.runtimes.keys import MissReason
from gkm_csi.proto.csi_pb2 import NodeGetVolumeStatsRequest
from support.csi.rig import Rig
from support.host.waiting import until

KERNELS = Path(__file__).parents[2] / "data" / "triton-cache"
ADD = next(KERNELS.glob("22LB*")) / "add_kernel.json"
"""A real kernel of Triton 3.9 for sm_90."""

KEY, NEW, MORE = (letter * 64 for letter in "abc")
"""Directories as Triton names them."""


def changed(**fields: Any) -> bytes:  # noqa: ANN401 -- values of the metadata
    return json.dumps(json.loads(ADD.read_bytes()) | {"hash": "another"} | fields).encode()


def write(path: Path, raw: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)


def measure(rig: Rig, volume: str, target: Path) -> None:
    """Ask for the usage of a volume, as kubelet does each minute."""
    rig.client.call("NodeGetVolumeStats", NodeGetVolumeStatsRequest(volume_id=volume, volume_path=str(target)))


@pytest.mark.mounts
def test_a_mounted_volume_reports_and_an_ended_one_counts(rig: Rig) -> None:
    ref = rig.ready({f"{KEY}/add_kernel.json": ADD.read_text(), f"{KEY}/add_kernel.cubin": "x"})
    volume, target = rig.volume()
    attributes = {"cacheName": ref.name, "readOnly": "false", "mountPath": "/cache"}
    rig.client.publish(volume, target, attributes)
    layout, inside = rig.files.layout, rig.namespace.inside(target)
    measure(rig, volume, target)
    assert kernel_misses.load(layout) == {}
    write(inside / NEW / "add_kernel.json", changed(num_warps=8))
    measure(rig, volume, target)
    expected = kernel_misses.KernelMissCounts({MissReason.OTHER_OPTIONS: 1}, 1, difference="an option differs")
    until(lambda: kernel_misses.load(layout) == {volume: {"triton": expected}}, "the compiled kernel to be reported")

    write(inside / MORE / "mul_kernel.json", changed())
    rig.client.unpublish(volume, target)
    rig.client.unpublish(volume, target)

    def counted() -> dict[MissReason, int]:
        return {
            reason: count for reason, count in counters.load(layout).kernel_misses.get("triton", {}).items() if count
        }

    wanted = {MissReason.OTHER_OPTIONS: 1, MissReason.NO_SUCH_KERNEL: 1}
    until(lambda: counted() == wanted, "the kernels of the ended volume to be counted once")
    until(lambda: kernel_misses.load(layout) == {}, "the ended volume to be forgotten")
    assert rig.nothing_left(volume, target)
