"""Numbers with nouns and verbs in messages: 1 node, 2 nodes; 1 is, 2 are; a, b and 3 more. Pure."""

from collections.abc import Sequence


def count_of(count: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun; pass `plural` if it is not the noun with an s."""
    return f"{count} {agree(count, noun, plural or noun + 's')}"


def listed(texts: Sequence[str], most: int) -> str:
    """Return the first texts, at most `most` of them, and the number of the others."""
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more} more" if more > 0 else "")


def agree(count: int, singular: str, plural: str) -> str:
    """Return the word that agrees with a number."""
    return singular if count == 1 else plural
