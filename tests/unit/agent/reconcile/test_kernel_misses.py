"""Compiled kernels that the CSI process found are in the status of the pod; a damaged file costs nothing else."""

import re

import pytest
from gkm.hoststate import kernel_misses
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.kernel_misses import KernelMissCounts, MissReason
from support.agent.node import Node


def test_a_pod_has_its_misses(node: Node) -> None:
    node.want("llama")
    node.settle()
    digest = node.pointer().digest
    for volume in ("csi-1", "csi-2"):
        node.mount(digest, volume)
    misses = KernelMissCounts({MissReason.OTHER_OPTIONS: 2, MissReason.OTHER_PATH: 0}, 7, complete=False)
    kernel_misses.save(node.layout, {"csi-1": misses, "gone": misses})
    node.settle()
    first, second = node.status().pods
    assert first.misses
    assert (first.misses.kernels, first.misses.mounted_kernels, first.misses.at_least) == (2, 7, True)
    assert first.misses.reasons == {"OtherOptions": 2}
    assert second.misses is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"volumes": []}', "volumes: not misses by volume"),
        ('{"volumes": {"../x": {"reasons": {}, "mounted": 0, "complete": true}}}', "'../x' cannot be the name of"),
        ('{"volumes": {"v": {"reasons": {"Invented": 1}, "mounted": 0, "complete": true}}}', "'Invented' is not"),
        ('{"volumes": {"v": {"reasons": {"Unknown": -1}, "mounted": 0, "complete": true}}}', "reasons: not numbers"),
        ('{"volumes": {"v": {"reasons": {}, "mounted": true, "complete": true}}}', "mounted: not a number"),
    ],
)
def test_a_damaged_file_is_refused_as_a_whole(node: Node, text: str, problem: str) -> None:
    node.layout.kernel_misses.parent.mkdir(parents=True, exist_ok=True)
    node.layout.kernel_misses.write_text(text)
    with pytest.raises(UnreadableState, match=re.escape(problem)):
        kernel_misses.load(node.layout)
    node.want("llama")
    assert node.settle()
