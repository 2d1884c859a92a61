"""Links and anchors of Markdown, as a repository's web page shows them. Pure: text in, values out.

Fenced code and inline code hold no links. Anchors are GitHub's: heading text in lower case,
without punctuation, spaces as hyphens, and `-1`, `-2` for headings that repeat. mkdocs.yml chooses the same slugs.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"^\s*(`{3,}|~{3,})")
_CODE = re.compile(r"(?<!`)(`+)(?!`)(.*?)(?<!`)\1(?!`)")
_INLINE = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^\s<>()]+(?:\([^\s()]*\))?)>?(?:\s+\"[^\"]*\")?\s*\)")
_DEFINITION = re.compile(r"^\s{0,3}\[[^\]]+\]:\s+<?(\S+?)>?\s*$")
_HTML = re.compile(r"<(?:a|img|source)\s[^>]*?(?:href|src)=\"([^\"]+)\"", re.IGNORECASE)
_HTML_ANCHOR = re.compile(r"<[a-z]+\s[^>]*?(?:id|name)=\"([^\"]+)\"", re.IGNORECASE)
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*\s*$")
_MARKUP = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")


@dataclass(frozen=True, slots=True)
class Link:
    """A link or an image; `line` counts from 1."""

    target: str
    line: int

    @property
    def path(self) -> str:
        """Return the target without its anchor; empty for an anchor of the same page."""
        return self.target.partition("#")[0]

    @property
    def anchor(self) -> str:
        """Return the anchor, or an empty text."""
        return self.target.partition("#")[2]

    @property
    def is_external(self) -> bool:
        """Return whether it has a scheme, such as https: or mailto:."""
        return re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:", self.target) is not None


def links(text: str) -> Iterator[Link]:
    """Yield the links of a page, from top to bottom."""
    for number, line in _prose(text):
        bare = _CODE.sub("", line)
        for pattern in (_INLINE, _DEFINITION, _HTML):
            for match in pattern.finditer(bare):
                yield Link(match[1], number)


def rewritten(text: str, target: Callable[[str], str | None]) -> str:
    """Return the page with other targets of its links, where `links` finds them; None makes a link plain text."""
    lines = text.splitlines(keepends=True)
    for number, line in _prose(text):
        lines[number - 1] = _rewritten(line, lines[number - 1], target)
    return "".join(lines)


def _rewritten(bare: str, line: str, target: Callable[[str], str | None]) -> str:
    hidden = _CODE.sub(lambda code: "\0" * len(code[0]), bare)
    found = [match for pattern in (_INLINE, _DEFINITION, _HTML) for match in pattern.finditer(hidden)]
    for match in sorted(found, key=lambda match: match.start(1), reverse=True):
        start, end = match.span(1)
        new = target(match[1])
        if new is not None:
            line = line[:start] + new + line[end:]
        elif match.re is _INLINE:
            opening, closing = match.start(), hidden.rindex("](", match.start(), start)
            line = line[:opening] + line[opening + 1 : closing] + line[match.end() :]
    return line


def anchors(text: str) -> set[str]:
    """Return the anchors of a page: its headings, and ids in HTML."""
    found: set[str] = set()
    for _, line in _prose(text):
        if heading := _HEADING.match(line):
            slug = _slug(heading[1])
            numbered = (f"{slug}-{count}" for count in range(1, len(found) + 2))
            found.add(slug if slug not in found else next(each for each in numbered if each not in found))
        found.update(_HTML_ANCHOR.findall(_CODE.sub("", line)))
    return found


def _slug(heading: str) -> str:
    plain = _MARKUP.sub(r"\1", heading).replace("`", "").replace("*", "")
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")


def _prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number, line) of the lines outside of fenced code."""
    fence = ""
    for number, line in enumerate(text.splitlines(), start=1):
        match = _FENCE.match(line)
        if fence:
            if match and match[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif match:
            fence = match[1]
        else:
            yield number, line
