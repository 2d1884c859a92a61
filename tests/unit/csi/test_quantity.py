"""Sizes in the notation of Kubernetes."""

import pytest
from gkm_csi.volumes import request


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1", 1),
        ("007", 7),
        ("1k", 1000),
        ("1Ki", 1024),
        ("3Mi", 3 << 20),
        ("2T", 2 * 10**12),
        ("1Ti", 1 << 40),
    ],
)
def test_a_size_is_read(text: str, size: int) -> None:
    assert request.parse_bytes(text) == size


@pytest.mark.parametrize(
    "text",
    [
        *("", " 1", "1 ", "1\n", "+1", "-1", "1.0", "1e3", "1K", "1KI", "1mi", "1m", "1Pi", "1Ei", "1Mi1", "0x1"),
        *("1_000", "١", "１Mi", "9" * 16, "1\0", "Mi"),
    ],
)
def test_an_invalid_size_is_none(text: str) -> None:
    assert request.parse_bytes(text) is None
