"""Compiled kernels that the CSI process found are in the status of the pod; a damaged file costs nothing else."""

import json
import re

import pytest
from gkm.hoststate import kernel_misses
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.kernel_misses import KernelMissCounts
from gkm.runtimes.keys import MissReason
from support.agent.node import Node


def test_a_pod_has_its_misses(node: Node) -> None:
    node.want("llama")
    node.settle()
    digest = node.pointer().digest
    for volume in ("csi-1", "csi-2"):
        node.mount(digest, volume)
    misses = KernelMissCounts({MissReason.OTHER_OPTIONS: 2, MissReason.OTHER_PATH: 0}, 7, complete=False)
    graphs = KernelMissCounts({MissReason.OTHER_ENVIRONMENT: 3}, 4, difference="VLLM_X: the cache has 1, the pod has 2")
    kernel_misses.save(node.layout, {"csi-1": {"triton": misses, "vllm": graphs}, "gone": {"triton": misses}})
    node.settle()
    first, second = node.status().pods
    assert first.misses
    assert (first.misses.kernels, first.misses.mounted_kernels, first.misses.at_least) == (5, 11, True)
    assert first.misses.reasons == {"OtherEnvironment": 3, "OtherOptions": 2}
    assert first.misses.runtimes["triton"].reasons == {"OtherOptions": 2}
    vllm = first.misses.runtimes["vllm"]
    assert (vllm.compiled, vllm.mounted, vllm.difference) == (3, 4, graphs.difference)
    assert second.misses is None


def of(runtime: str, **fields: object) -> str:
    """Return a file with one volume and valid fields, except the given ones."""
    valid = {"reasons": {}, "mounted": 0, "complete": True, "difference": ""}
    return json.dumps({"volumes": {"v": {runtime: valid | fields}}})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"volumes": []}', "volumes: not misses by volume"),
        ('{"volumes": {"../x": {}}}', "'../x' cannot be the name of"),
        (of("cupy"), "not values by runtime"),
        (of("triton", reasons={"Invented": 1}), "'Invented' is not"),
        (of("triton", reasons={"Unknown": -1}), "reasons: not numbers"),
        (of("vllm", mounted=True), "mounted: not a number"),
        (of("vllm", difference="a\x1b[2J"), "difference: not a short text"),
        (of("vllm", difference="a" * 201), "difference: not a short text"),
    ],
)
def test_a_damaged_file_is_refused_as_a_whole(node: Node, text: str, problem: str) -> None:
    node.layout.kernel_misses.parent.mkdir(parents=True, exist_ok=True)
    node.layout.kernel_misses.write_text(text)
    with pytest.raises(UnreadableState, match=re.escape(problem)):
        kernel_misses.load(node.layout)
    node.want("llama")
    assert node.settle()
