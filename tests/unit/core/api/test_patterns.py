"""Regular expressions of policies: RE2's language, the whole subject, and bounds on memory and size."""

import pytest
from gkm.api import policies
from gkm.api.policies import MAX_PATTERN, MAX_SUBJECT


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("a.c", "abc", True),
        ("a.c", "xabc", False),
        ("a|b", "ab", False),
        ("a.c", "a\nc", False),
        ("abc$", "abc\n", False),
        ("(?m)^a$", "a\nb", False),
        ("a.c", "aéc", True),
        ("a.c", "a\U0001f600c", True),
        (r"\d", "\u0663", False),  # \d, \w and \s are ASCII in RE2, as in cosign
        (r"\w", "é", False),
        (r"\pL", "é", True),
        (r"\Qa.c\E", "abc", False),
        (r"\Qa.c\E", "a.c", True),
        (".*", "a" * MAX_SUBJECT, True),
        (".*", "a" * (MAX_SUBJECT + 1), False),
        (".*", "é" * MAX_SUBJECT, True),
        (".*", "\ud800", False),
    ],
)
def test_a_pattern_matches_the_whole_subject_in_the_language_of_re2(
    pattern: str, subject: str, *, expected: bool
) -> None:
    assert policies.full_match(pattern)(subject) is expected


@pytest.mark.parametrize(
    "pattern",
    ["(a?){1000}" * 51, "(.*){1000}" * 51, r"(\w*){1000}" * 46, r"\pL{1000}" * 50, "\ud800", "é("],
    ids=["optional", "dots", "words", "letters", "surrogate", "open group"],
)
def test_a_pattern_that_needs_too_much_memory_or_is_invalid_is_refused(pattern: str) -> None:
    assert len(pattern) <= MAX_PATTERN
    with pytest.raises(ValueError, match="RE2"):
        policies.full_match(pattern)


def test_a_pattern_as_long_as_allowed_compiles() -> None:
    assert policies.full_match("a" * MAX_PATTERN)("a" * MAX_PATTERN)
    with pytest.raises(ValueError, match="513 characters"):
        policies.full_match("a" * (MAX_PATTERN + 1))
