"""A self-contained page in HTML: text, tables, lists and pictures in SVG. Pure.

Its policy (CSP) allows no script and no request, so that no text of a cluster can become one.
"""

from collections.abc import Iterable, Iterator, Sequence

from rich.text import Span, Text

from gkm_cli.boxes import cut, text
from gkm_cli.terminal import Rows

MAX_ROWS = 200
SIGN = 7
"""Pixels of a bar for each sign that it has on a terminal."""
MAX_SIZE = 1_000_000
"""Characters of the text; it ends there."""
MAX_TEXT = 2_000
"""Characters of a cell or line: node lists of a group may be long. Programs read -o json."""
_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">"""
_STYLE = """<style>
body{font:14px/1.45 system-ui,sans-serif;margin:1.5rem;color:#1d2529;background:#fff}
h1{font-size:1.3rem}h2{font-size:1.05rem;margin:1.4rem 0 .4rem}
table{border-collapse:collapse}th,td{text-align:left;padding:.15rem .8rem .15rem 0;vertical-align:top}
th{border-bottom:1px solid #90a4ae;font-weight:600}tr:nth-child(even) td{background:#f5f7fa}
td{max-width:60rem;overflow-wrap:anywhere;white-space:pre-wrap}td>.bar{display:flex;margin-top:.25rem}
.wide{overflow:auto;margin:1rem 0}svg{display:block;max-width:100%;height:auto}
.bold{font-weight:600}.red{color:#b71c1c}.green{color:#2e7d32}.yellow{color:#8d6e00}
.bar i{display:inline-block;height:.8rem}.key{margin-right:1.2rem}
i.green{background:#2e7d32}i.cyan{background:#00acc1}i.bright_black{background:#90a4ae}i.yellow{background:#fbc02d}
</style>"""


class Page:
    """Collects the parts of an HTML page: a Sheet, as a terminal is."""

    width = 160

    def __init__(self, title: str) -> None:
        self._title = title
        self._parts: list[str] = []
        self._left = MAX_SIZE

    def line(self, content: str, style: str = "") -> None:
        """Add a line to the page; `style` is a CSS class."""
        self._add(f'<div class="{style}">{_short(content)}</div>')

    def heading(self, content: str) -> None:
        """Add a second-level heading to the page."""
        self._add(f"<h2>{_short(content)}</h2>")

    def legend(self, title: str, meanings: Sequence[tuple[Text, str]], _unit: str) -> None:
        """Add a heading for bars, and what each color of them means; numbers stand beside bars."""
        self.heading(title)
        shown = "".join(f'<span class="key">{_bar(sign)} {_short(meaning)}</span>' for sign, meaning in meanings)
        self._add(f"<p>{shown}</p>")

    def numbered(self, sentences: Iterable[str]) -> None:
        """Add a numbered list to the page."""
        self._add(f"<ol>{''.join(f'<li>{_short(sentence)}</li>' for sentence in sentences)}</ol>")

    def table(self, columns: Sequence[str], rows: Rows, more: str = "", limit: int | None = MAX_ROWS) -> None:
        """Add a table to the page without its empty columns. `more` names the rows beyond `limit`."""
        most = MAX_ROWS if limit is None else min(limit, MAX_ROWS)
        filled = [at for at in range(len(columns)) if any(str(row[at]) for row in rows)]
        head = "".join(f"<th>{text(columns[at])}</th>" for at in filled)
        body = "".join(f"<tr>{''.join(f'<td>{_cell(row[at])}</td>' for at in filled)}</tr>" for row in rows[:most])
        self._add(f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>')
        if len(rows) > most:
            self.line(f"... and {len(rows) - most} more {more}; -o json has all")

    def picture(self, lines: Iterable[str], at: int | None = None) -> None:
        """Add an SVG picture, before the part with the number `at`; None adds it at the end."""
        part = f'<div class="wide">{"".join(lines)}</div>'
        self._parts.insert(len(self._parts) if at is None else at, part)

    def _add(self, part: str) -> None:
        self._left -= len(part)
        if self._left >= 0:
            self._parts.append(part)

    def html(self) -> Iterator[str]:
        """Yield the HTML lines of the page."""
        title = _short(self._title)
        yield f"{_HEAD}\n<title>{title}</title>\n{_STYLE}</head>\n<body><h1>{title}</h1>"
        yield from self._parts
        if self._left < 0:
            yield "<p>... -o json has more</p>"
        yield "</body></html>"


def _short(content: str) -> str:
    return text(cut(content, MAX_TEXT))


def _cell(cell: str | int | Text) -> str:
    return _bar(cell) if isinstance(cell, Text) else _short(str(cell))


def _bar(signs: Text) -> str:
    """Return a bar: a colored part for each style, as long as it has signs."""
    spans = signs.spans or [Span(0, len(signs), signs.style)]
    parts = "".join(
        f'<i class="{span.style}" style="width:{(span.end - span.start) * SIGN}px"></i>'
        for span in spans
        if span.end > span.start
    )
    return f'<span class="bar">{parts}</span>'
