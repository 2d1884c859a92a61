"""A page in HTML that needs nothing but itself: text, tables, lists and pictures in SVG. Pure.

Its policy (CSP) allows no script and no request, so that no text of a cluster can become one.
"""

from collections.abc import Iterable, Iterator, Sequence

from rich.text import Text

from gkm_cli.boxes import cut, text

MAX_ROWS = 200
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
td{max-width:60rem;overflow-wrap:anywhere}code{white-space:pre;font:11px/1 monospace}
.wide{overflow:auto;margin:1rem 0}.picture{max-height:85vh;border:1px solid #cfd8dc}
svg{max-width:max(100%,1400px);height:auto}.bold{font-weight:600}.red{color:#b71c1c}.green{color:#2e7d32}
.yellow{color:#8d6e00}.cyan{color:#00838f}.bright_black{color:#78909c}
</style>"""


class Page:
    """Collects the parts of a page: a sheet, as a terminal is (gkm_cli.terminal)."""

    width = 160

    def __init__(self, title: str) -> None:
        self._title = title
        self._parts: list[str] = []
        self._left = MAX_SIZE

    def line(self, content: str, style: str = "") -> None:
        """Add a line."""
        self._add(f'<div class="{style}">{_short(content)}</div>')

    def heading(self, content: str) -> None:
        """Add a heading."""
        self._add(f"<h2>{_short(content)}</h2>")

    def numbered(self, sentences: Iterable[str]) -> None:
        """Add a numbered list."""
        self._add(f"<ol>{''.join(f'<li>{_short(sentence)}</li>' for sentence in sentences)}</ol>")

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[str | int | Text]],
        more: str = "",
        limit: int | None = MAX_ROWS,
    ) -> None:
        """Add a table without its empty columns. `more` names the rows beyond `limit`."""
        most = MAX_ROWS if limit is None else min(limit, MAX_ROWS)
        filled = [at for at in range(len(columns)) if any(str(row[at]) for row in rows)]
        head = "".join(f"<th>{text(columns[at])}</th>" for at in filled)
        body = "".join(f"<tr>{''.join(f'<td>{_cell(row[at])}</td>' for at in filled)}</tr>" for row in rows[:most])
        self._add(f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>')
        if len(rows) > most:
            self.line(f"... and {len(rows) - most} more {more}; -o json has all")

    def picture(self, lines: Iterable[str], at: int | None = None) -> None:
        """Add a picture in SVG, before the part with the number `at`; without one, at the end."""
        part = f'<div class="wide picture">{"".join(lines)}</div>'
        self._parts.insert(len(self._parts) if at is None else at, part)

    def _add(self, part: str) -> None:
        self._left -= len(part)
        if self._left >= 0:
            self._parts.append(part)

    def html(self) -> Iterator[str]:
        """Yield the lines of the page."""
        title = _short(self._title)
        yield f"{_HEAD}\n<title>{title}</title>\n{_STYLE}</head>\n<body><h1>{title}</h1>"
        yield from self._parts
        if self._left < 0:
            yield "<p>... -o json has more</p>"
        yield "</body></html>"


def _short(content: str) -> str:
    return text(cut(content, MAX_TEXT))


def _cell(cell: str | int | Text) -> str:
    if not isinstance(cell, Text):
        return _short(str(cell))
    spans = "".join(
        f'<span class="{span.style}">{text(cell.plain[span.start : span.end])}</span>' for span in cell.spans
    )
    return f"<code>{spans}</code>"
