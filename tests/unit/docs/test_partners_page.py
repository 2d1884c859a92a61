"""The table of partners: each partner that is built is in it, with the version that its file pins."""

from datetime import UTC, datetime
from pathlib import Path

import partners_reference
import pytest
from support.peers.build import directories

OURS = {"noopcsi"}
"""Directories whose command is ours."""
PARTNERS = partners_reference.partners()


def test_each_partner_that_is_built_is_in_the_table() -> None:
    named = {Path(pin).parent.name for each in PARTNERS for pin in each.pins}
    assert {path.name for path in directories()} - OURS <= named


@pytest.mark.parametrize("partner", PARTNERS, ids=lambda each: each.partner)
def test_a_row_is_dated_and_no_pin_is_newer_than_the_newest(partner: partners_reference.Partner) -> None:
    assert partner.seen <= datetime.now(UTC).date()
    assert partner.source
    assert partner.tested
    assert max(map(_numbers, partner.tested)) <= _numbers(partner.newest)


def test_a_newest_release_that_is_not_pinned_is_not_run() -> None:
    pinned = PARTNERS[0].tested[0]
    assert partners_reference.row(PARTNERS[0]._replace(newest=pinned)).endswith("| yes |")
    assert partners_reference.row(PARTNERS[0]._replace(newest=f"{pinned}1")).endswith("| not run |")


def test_a_pin_that_is_not_there_is_an_error() -> None:
    missing = PARTNERS[0]._replace(module="example.com/absent")
    with pytest.raises(LookupError, match=r"does not pin example\.com/absent"):
        _ = missing.tested


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.removeprefix("v").split("."))
