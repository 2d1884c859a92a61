"""Regular expressions from configuration, matched against text that others chose: whole, and in linear time.

Python's own engine backtracks: one careless pattern and one subject made for it hold a thread for hours. Sigstore's
tools all use RE2's language (Go's `regexp`), and so does the Rust engine inside pydantic-core, which sigstore-python
brings along. It knows no look-around and no back-references, and bounds the size of what it compiles.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic_core import SchemaValidator

MAX_PATTERN = 512
"""Characters in a pattern."""
MAX_SUBJECT = 1024
"""Characters in a subject; a longer one matches nothing."""


def full_match(pattern: str) -> Callable[[str], bool]:
    """Return whether a text as a whole matches `pattern`: `a.c` does not match `xabc`, and `$` changes nothing.

    Raises:
        ValueError: it is no pattern, or one that is too long.
    """
    compiled = _compiled(pattern)
    return lambda text: len(text) <= MAX_SUBJECT and compiled.isinstance_python(text)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> "SchemaValidator":
    # Loaded where a pattern is configured, and nowhere else.
    from pydantic_core import SchemaError, SchemaValidator, core_schema  # noqa: PLC0415

    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"the pattern has {len(pattern)} characters, at most {MAX_PATTERN} are read")
    try:
        # Alone first: `a)|(b` is no pattern, but inside the brackets below it would be one that is not anchored.
        SchemaValidator(core_schema.str_schema(pattern=pattern))
        return SchemaValidator(core_schema.str_schema(pattern=rf"\A(?:{pattern})\z"))
    except SchemaError as error:
        why = str(error).strip().rpartition("\n")[2].removeprefix("error: ")
        raise ValueError(f"{pattern[:80]!r} is no regular expression of RE2's language: {why[:120]}") from error
