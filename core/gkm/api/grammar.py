"""Numbers with nouns and verbs in sentences for people: 1 node, 2 nodes; 1 is, 2 are. Pure."""


def count_of(count: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, `plural` where an s at the end does not make it."""
    return f"{count} {agree(count, noun, plural or noun + 's')}"


def agree(count: int, singular: str, plural: str) -> str:
    """Return the word that agrees with a number."""
    return singular if count == 1 else plural
