"""Parse the Python literals that pprint writes for plain data: tuples, lists, dicts, strings, numbers, None, booleans.

Not `ast.literal_eval`: in a privileged process a foreign file must not reach Python's own parser, which took 500 MiB
for 1 MiB of text (measured) and, as its documentation warns, may crash on deep nesting. Here tokens are read one by
one, and memory grows with the values, whose number is bounded.
"""

import re
from collections.abc import Iterator
from typing import Final

MAX_TOKENS: Final = 500_000
"""Limit of tokens. An index of vLLM has 26 for each graph."""
MAX_NESTING: Final = 16

# No operators, no prefixes of strings, no triple quotes, no escapes except of quotes and the backslash.
_TOKEN: Final = re.compile(
    r"""\s*([(){}\[\],:]|None|True|False|(?:0|[1-9][0-9]{0,17})(?![0-9])"""
    r"""|'(?:[^'\\\n]|\\[\\'"])*'(?!')|"(?:[^"\\\n]|\\[\\'"])*"(?!"))\s*"""
)
_ESCAPED: Final = re.compile(r"\\(.)")
_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}
_CONSTANTS: Final = {"None": None, "True": True, "False": False}
_END: Final = ""


class NotALiteral(ValueError):
    """The text is not a Python literal of plain data, or too large."""


def parse(text: str) -> object:
    """Parse a Python literal and return its value.

    Raises:
        NotALiteral: it is not a literal, or larger or deeper than the bounds.
    """
    reader = _Parser(_tokens(text))
    value = reader.value(MAX_NESTING)
    reader.expect(_END)
    return value


def _tokens(text: str) -> Iterator[str]:
    position = 0
    for _ in range(MAX_TOKENS + 1):
        if position == len(text):
            yield _END
            return
        match = _TOKEN.match(text, position)
        if match is None:
            raise NotALiteral
        yield match[1]
        position = match.end()
    raise NotALiteral


class _Parser:
    def __init__(self, tokens: Iterator[str]) -> None:
        self._tokens = tokens
        self._current = next(tokens)

    def expect(self, token: str) -> None:
        if self._current != token:
            raise NotALiteral
        self._advance()

    def _advance(self) -> None:
        self._current = next(self._tokens, _END)

    def value(self, nesting: int) -> object:
        start = self._current
        if _is_string(start):
            return self._strings()
        self._advance()
        if start in _CONSTANTS:
            return _CONSTANTS[start]
        if start.isdigit():
            return int(start)
        if not nesting or start not in _CLOSING:
            raise NotALiteral
        return self._mapping(nesting - 1) if start == "{" else self._sequence(start, nesting - 1)

    def _strings(self) -> str:
        """Return adjacent strings as one: pprint breaks a long string so."""
        parts = []
        while _is_string(self._current):
            parts.append(_ESCAPED.sub(r"\1", self._current[1:-1]))
            self._advance()
        return "".join(parts)

    def _sequence(self, opening: str, nesting: int) -> object:
        items: list[object] = []
        comma = True
        while comma and self._current != _CLOSING[opening]:
            items.append(self.value(nesting))
            comma = self._comma()
        self.expect(_CLOSING[opening])
        if opening == "[":
            return items
        # Parentheses around one value and no comma are only parentheses.
        return items[0] if len(items) == 1 and not comma else tuple(items)

    def _mapping(self, nesting: int) -> dict[object, object]:
        pairs: dict[object, object] = {}
        comma = True
        while comma and self._current != "}":
            key = self.value(nesting)
            self.expect(":")
            try:
                pairs[key] = self.value(nesting)
            except TypeError as error:  # a list cannot be a key
                raise NotALiteral from error
            comma = self._comma()
        self.expect("}")
        return pairs

    def _comma(self) -> bool:
        is_comma = self._current == ","
        if is_comma:
            self._advance()
        return is_comma


def _is_string(token: str) -> bool:
    return token.startswith(("'", '"'))
