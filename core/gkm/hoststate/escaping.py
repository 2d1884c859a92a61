r"""Escape foreign text before it leaves a process: for a terminal, a log line, or a condition that kubectl prints.

Manifests, labels, file names and responses of registries are not trusted. A terminal obeys control characters (C0, and
C1 as single characters) and shows text with bidirectional overrides in another order than the order of its bytes
(Unicode TR 36, "Bidirectional Text Spoofing"). Unprintable characters therefore become the escapes of Python's source:
`\x1b`, `\u202e`. Every program calls these functions on all its output.
"""


def escape(text: str) -> str:
    """Return a text as one line of printable characters; others become escapes."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def escape_lines(text: str) -> str:
    """Return a text with every line printable; unprintable characters become escapes."""
    return "\n".join(map(escape, text.split("\n")))


def escape_json(document: str, *, ascii_only: bool) -> str:
    """Return a JSON document with the same values and printable lines; `ascii_only` is for outputs without UTF-8.

    Unprintable characters occur only in strings, where JSON has escapes for them: `\u202e`.
    """
    return "\n".join(
        line
        if line.isprintable() and (line.isascii() or not ascii_only)
        else "".join(
            char if char.isprintable() and (char.isascii() or not ascii_only) else _utf16(char) for char in line
        )
        for line in document.split("\n")
    )


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")


def _utf16(character: str) -> str:
    """Return the escape of RFC 8259, section 7: a pair of surrogates beyond U+FFFF."""
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
