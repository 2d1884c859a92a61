"""The creation time that an image states: hostile text, of which only a valid time counts."""

from datetime import UTC, datetime

import pytest
from gkm.images.configuration import creation_time

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    ["2026-01-01T12:00:00Z", "2026-01-01T12:00:00.987654Z", "2026-01-01T14:00:00+02:00"],
)
def test_a_time_is_truncated_to_the_second(text: str) -> None:
    assert creation_time([text]) == NOON


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "2026-01-01T12:00:00",
        "1970-01-01T00:00:00Z",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59-14:00",
        "9" * 65,
    ],
)
def test_an_invalid_time_is_ignored(text: str) -> None:
    assert creation_time([text]) is None


def test_the_first_valid_time_counts() -> None:
    assert creation_time(["", "2026-01-01T12:00:00Z", "2025-01-01T12:00:00Z"]) == NOON
