"""Regular expressions from the configuration, matched in linear time against text that a stranger chose.

Python's own engine backtracks: one careless pattern and one crafted subject occupy a thread for hours. RE2 runs every
pattern in time proportional to the subject, and its language is the language of Sigstore's tools (Go's `regexp`):
no look-around, no back-references. docs/decisions/0010 has the measurements.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

MAX_PATTERN = 512
"""Characters in a pattern."""
MAX_SUBJECT = 1024
"""Characters in a subject; a longer subject matches nothing."""
MAX_PROGRAM_BYTES = 1 << 20
"""Memory of one compiled pattern; RE2 refuses a pattern that needs more.

It bounds the time too: the slowest pattern found that compiles needs 0.7 s for a subject of MAX_SUBJECT characters,
with RE2's default of 8 MiB it needs 24 s.
"""


def full_match(pattern: str) -> Callable[[str], bool]:
    """Return a function that reports whether a whole text matches `pattern`; `a.c` does not match `xabc`.

    Raises:
        ValueError: the pattern is invalid, longer than MAX_PATTERN, or compiles to more than MAX_PROGRAM_BYTES.
    """
    compiled = _compiled(pattern)

    def matches(text: str) -> bool:
        if len(text) > MAX_SUBJECT:
            return False
        try:
            return compiled.fullmatch(text.encode()) is not None
        except UnicodeEncodeError:  # a lone surrogate, which UTF-8 cannot express
            return False

    return matches


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:  # noqa: ANN401 -- re2 publishes no types
    # Imported here, so that a process without patterns does not load the engine (2.6 MiB).
    import re2  # noqa: PLC0415

    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"the pattern has {len(pattern)} characters, the limit is {MAX_PATTERN}")
    options = re2.Options()
    options.max_mem = MAX_PROGRAM_BYTES
    options.never_capture = True
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
    except UnicodeEncodeError:
        reason = "it holds a lone surrogate"
    raise ValueError(f"{pattern[:80]!r} is no regular expression of RE2's language: {reason[:120]}")
