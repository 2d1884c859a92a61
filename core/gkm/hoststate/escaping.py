r"""Foreign text on its way out of a process: to a terminal, into a log line, or into a condition that kubectl prints.

Manifests, labels, file names and answers of registries come from anybody. A terminal obeys control characters (C0, and
C1 as single characters), and shows text with bidirectional overrides in another order than it is read (Unicode TR 36,
"Bidirectional Text Spoofing"). Whatever is not printable is therefore written as Python writes it in source: `\x1b`,
`\u202e`. Every output edge of every program calls one of these functions.
"""


def escape(text: str) -> str:
    """Return a text as one line of printable characters."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def escape_lines(text: str) -> str:
    """Return a text whose lines are printable."""
    return "\n".join(map(escape, text.split("\n")))


def escape_json(document: str, *, ascii_only: bool = False) -> str:
    r"""Return a JSON document with the same values and printable lines; `ascii_only` is for outputs without UTF-8.

    Characters that are not printable stand in strings only, where JSON has escapes for them: `\u202e`.
    """
    return "\n".join(
        line
        if line.isprintable() and (line.isascii() or not ascii_only)
        else "".join(one if one.isprintable() and (one.isascii() or not ascii_only) else _utf16(one) for one in line)
        for line in document.split("\n")
    )


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")


def _utf16(character: str) -> str:
    """Return the escape of RFC 8259, section 7: a pair of surrogates beyond U+FFFF."""
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
