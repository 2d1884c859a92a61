"""Of domains and blocks that are alike, only the first are looked at."""

from gkm.packing.domains.alike import first_of_alike


def test_of_alike_domains_of_a_block_the_first_are_looked_at() -> None:
    assert first_of_alike(["a", "b", "a", "a"], [2, 2, 2, 2], [range(4)], 9) == [0, 1, 2]


def test_of_alike_blocks_as_many_as_there_are_groups() -> None:
    blocks = [range(2), range(2, 4), range(4, 6)]
    assert first_of_alike(["a", "b", "a", "b", "b", "a"], [1] * 6, blocks, 1) == [0, 1, 4, 5]
