"""A refusal says what holds GPUs of the nodes that the run may use, and names pods only where they may be named."""

import pytest
from gkm.packing.usable_nodes import GpusInUse, UsableNodes, with_holders
from gkm.packing.values import Level, Refusal

NAMED = (("ml/a", 8), ("ml/b", 4))


@pytest.mark.parametrize(
    ("held", "text"),
    [
        (GpusInUse(72), ""),
        (GpusInUse(72, 12, 0, NAMED), ". Of 72 GPUs pods hold 12 (most: ml/a 8, ml/b 4)"),
        (
            GpusInUse(72, 12, 8, NAMED),
            ". Of 72 GPUs pods hold 12 (most: ml/a 8, ml/b 4) and plans of other runs hold 8",
        ),
        (GpusInUse(72, 12, 8), ". Of the GPUs pods hold some and plans of other runs hold some"),
        (GpusInUse(72, 0, 8), ". Of the GPUs plans of other runs hold some"),
        (
            GpusInUse(72, 1, 0, (("ml/\x1b[2J\n" + "x" * 200, 1),)),
            f". Of 72 GPUs pods hold 1 (most: ml/\\x1b[2J\\n{'x' * 120} 1)",
        ),
    ],
)
def test_a_refusal_says_what_holds_gpus(held: GpusInUse, text: str) -> None:
    refusal = with_holders(Refusal(Level.NODE, "no node has 8 GPUs free", 0), UsableNodes((), "", held=held))
    assert refusal == Refusal(Level.NODE, f"no node has 8 GPUs free{text}", 0)


@pytest.mark.parametrize("level", [Level.SCOPE, Level.BALANCE])
def test_one_that_would_fit_on_what_is_free_does_not(level: Level) -> None:
    refusal = Refusal(level, "it would fit", 0)
    assert with_holders(refusal, UsableNodes((), "", held=GpusInUse(72, 12, 8, NAMED))) is refusal
