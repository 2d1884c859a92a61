import pytest
from gkm.mounts.relocation.tree_limits import (
    MAX_TREES,
    NAMESPACE_TREES,
    AllInUse,
    TooMany,
    Uses,
    check_all,
    check_share,
)


def keys(number: int) -> list[str]:
    return [f"key-{one}" for one in range(number)]


def test_a_share_counts_the_requested_tree_once() -> None:
    check_share(Uses(own=keys(NAMESPACE_TREES)), "key-0")
    check_share(Uses(own=keys(NAMESPACE_TREES - 1)), "new")
    with pytest.raises(TooMany):
        check_share(Uses(own=keys(NAMESPACE_TREES)), "new")


@pytest.mark.parametrize("own", [[], ["new"]])
def test_the_first_tree_of_a_namespace_is_always_accepted(own: list[str]) -> None:
    check_all(Uses(own=own), "new", MAX_TREES + 5)


def test_beyond_the_first_there_are_as_many_as_may_be() -> None:
    check_all(Uses(own=["old", "new"]), "new", MAX_TREES - 1)
    with pytest.raises(AllInUse):
        check_all(Uses(own=["old", "new"]), "new", MAX_TREES)
