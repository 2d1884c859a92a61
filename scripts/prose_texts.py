"""The sentences of this repository: docstrings, comments and messages of Python sources, and Markdown documents.

Code is masked, also the targets of links and the fields of f-strings. A mask keeps each offset, so that a hit has the
line of its file. Pure, but for `read`.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOMS = {
    "core": ("core/**/*.py",),
    "operator": ("operator/**/*.py",),
    "agent": ("agent/**/*.py",),
    "csi": ("csi/**/*.py",),
    "cli": ("cli/**/*.py",),
    "docs": ("docs/**/*.md", "README.md", "CONTRIBUTING.md", "SECURITY.md"),
}
"""The files of each room, below the repository."""
KINDS = ("docstrings", "comments", "messages", "documents")
_SENTENCE_END = re.compile(
    r"[.!?]['\")]*(?=\s)|:\s*$|^#+\s.*$|\n\s*\n|\n(?=\s*(?:[-*|>]|\d+\.)\s)|\||;\s", re.MULTILINE
)
_MASKED = re.compile(
    r"^ *(?P<fence>```|~~~).*?^ *(?P=fence)[^\n]*$|`[^`\n]+`|(?<=\])\([^)\s]*\)|<!--.*?-->|https?://\S+",
    re.MULTILINE | re.DOTALL,
)
_FEWEST_WORDS = 3
"""A string constant with fewer words is a key or a name, not a message."""


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of prose; `line` is the line of its first character in the file, from 1."""

    path: str
    line: int
    kind: str
    text: str

    def line_at(self, offset: int) -> int:
        """Return the line of the file that holds an offset of the text."""
        return self.line + self.text.count("\n", 0, offset)


def read(root: Path, room: str) -> list[Text]:
    """Read the prose of a room, without generated protobuf modules."""
    found: list[Text] = []
    for path in sorted(path for pattern in ROOMS[room] for path in root.glob(pattern) if "_pb2" not in path.name):
        name, source = path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")
        found.extend(python(name, source) if path.suffix == ".py" else [Text(name, 1, "documents", masked(source))])
    return found


def python(path: str, source: str) -> Iterator[Text]:
    """Yield the docstrings, messages and comments of a module.

    A message is a string of three words or more: a log event, an error, a help text.
    """
    nodes = list(ast.walk(ast.parse(source)))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if id(node) in parts or not isinstance(node, ast.Constant | ast.JoinedStr):
            continue
        text = masked(_string(node))
        if id(node) in docstrings:
            yield Text(path, node.lineno, "docstrings", text)
        elif len(words(text)) >= _FEWEST_WORDS:
            yield Text(path, node.lineno, "messages", text)
    yield from _comments(path, source)


def masked(text: str) -> str:
    """Replace inline code and the targets of links by `_`, and fenced code by spaces, without moving any character."""
    return _MASKED.sub(lambda match: re.sub(r"[^\n]", " " if match["fence"] else "_", match[0]), text)


def words(text: str) -> list[str]:
    """Return the words of a text; masked code is one word."""
    return re.findall(r"[A-Za-z_][\w'-]*", text)


def sentences(text: str) -> list[str]:
    """Split a text at full stops, semicolons, headings, paragraphs, items of lists and cells of tables."""
    return [sentence for sentence in _SENTENCE_END.split(text) if sentence.strip()]


def _string(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "_" for part in node.values)


def _comments(path: str, source: str) -> Iterator[Text]:
    """Yield the comments; those on lines that follow one another in one column are one text."""
    block: list[tuple[int, int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line, column = token.start
        if block and (block[-1][0] + 1, block[-1][1]) != (line, column):
            yield Text(path, block[0][0], "comments", masked("\n".join(text for _, _, text in block)))
            block = []
        block.append((line, column, token.string.lstrip("#! ")))
    if block:
        yield Text(path, block[0][0], "comments", masked("\n".join(text for _, _, text in block)))
