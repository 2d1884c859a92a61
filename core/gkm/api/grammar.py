"""Numbers with nouns and verbs in messages: 1 node, 2 nodes; 1 is, 2 are; a, b and 3 more. Pure."""

from collections.abc import Sequence


def count_of(count: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, such as `2 nodes`; `plural` is for nouns without a plain s."""
    return f"{count} {agree(count, noun, plural or noun + 's')}"


def listed(texts: Sequence[str], most: int) -> str:
    """Return the first `most` texts as a list for people, such as `a, b and 3 more`."""
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more} more" if more > 0 else "")


def agree(count: int, singular: str, plural: str) -> str:
    """Return the singular word for a count of 1, the plural word otherwise."""
    return singular if count == 1 else plural
