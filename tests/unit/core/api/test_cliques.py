"""One rule says which names are those of NVLink cliques."""

import pytest
from gkm.api.cliques import names_clique

ZERO = "00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize(
    "name",
    [
        *("", ZERO, f"{ZERO}.0", f"{ZERO}.1", f"{ZERO}.32766", ZERO.replace("-", ""), "0", "0.0", "00", " 0 "),
        *("-", ".", "N.A", "n.a.0", "N/A", "NA", "n-a", "none", "None", "UNKNOWN", "unknown.0", "null"),
    ],
)
def test_a_name_that_stands_for_none_is_no_clique(name: str) -> None:
    assert not names_clique(name)


@pytest.mark.parametrize(
    "name",
    [
        *("00000001-0000-4000-8000-000000000000.0", "0f6d8c1e-6a0e-4a39-8c4e-5f3f2e1d0c9b", "10.0", "01", "0.a", "a.0"),
        *("d0", "rack0", "nap", "none-1", "unknown.rack"),
    ],
)
def test_any_other_name_is_that_of_a_clique(name: str) -> None:
    assert names_clique(name)
