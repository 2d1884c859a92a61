import gc

import pytest
from gkm.packing.plan import uncollected
from gkm.packing.values import TooLargeError


def test_the_collector_is_away_and_comes_back_also_after_an_error() -> None:
    assert gc.isenabled()
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(TooLargeError, match="too large"), uncollected():
        raise TooLargeError("too large")
    assert gc.isenabled()


def test_who_keeps_it_away_for_longer_is_not_disturbed() -> None:
    gc.disable()
    try:
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
