"""Count the turns of phrase that make a reader read twice, per 10,000 words, for each room and the last commits.

    python scripts/prose.py                        # one table
    python scripts/prose.py --list core possessive # path:line of each hit
    python scripts/prose.py --list core long       # sentences of more than 30 words

`tests/unit/docs/test_prose.py` holds the ceilings.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from prose_texts import KINDS, ROOMS, Text, read, sentences, words

ROOT = Path(__file__).resolve().parent.parent
COMMITS = "commits"
LONG = "long"
_LONGEST = 30
_START = r"(?:^|(?<=[.!?;:|]\s)|(?<=\*\*\s)|(?<=[-*]\s)|(?<=\d\.\s))"
PATTERNS = {
    "possessive": r"\b(?:that|those)\s+of\b|\bones?\s+that\b|\bof\s+(?:its|their|our|your)\s+own\b"
    r"|\bwhich\s+(?:is|are)\s+(?:its|theirs|ours|yours)\b",
    "negative": r"\b(?:[Nn]othing|[Nn]obody|none|[Nn]either)\b|\bNone\s+(?:of|is|are|has|have)\b",
    "what": _START + r"What\s(?![^.;|]*\?)",
    "whatever": r"\b(?:[Ww]hatever|[Ww]hoever|[Ww]hichever|[Hh]owever\s+(?:many|much|long|often|large|small))\b",
    "counts": r"\b(?:counts?|counted)\s+(?:as|on|for|only|too|again|also|alone|here|there|among|like)\b"
    r"|\bcounts(?=[.,;:)]|$)",
    "of-first": _START + r"(?:Of\s(?!course\b)|(?<=;\s)of\s)",
}
"""Regular expressions of the patterns, by the name that `--list` takes."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Hits per pattern, words and sentences of some texts."""

    hits: dict[str, int]
    words: int
    sentences: int

    def rate(self, pattern: str) -> float:
        """Return the hits of a pattern per 10,000 words; of sentences that are too long, the share in per cent."""
        whole, scale = (self.sentences, 100) if pattern == LONG else (self.words, 10_000)
        return scale * self.hits[pattern] / max(1, whole)


def count(texts: Sequence[Text]) -> Counts:
    """Count all patterns in texts."""
    hits = {pattern: sum(1 for text in texts for _ in offsets(text.text, pattern)) for pattern in (*PATTERNS, LONG)}
    split = sum(len(sentences(text.text)) for text in texts)
    return Counts(hits, sum(len(words(text.text)) for text in texts), split)


def offsets(text: str, pattern: str) -> Iterator[int]:
    """Yield where a pattern, or a sentence of more than 30 words, begins in a text."""
    if pattern != LONG:
        yield from (match.start() for match in re.finditer(PATTERNS[pattern], text, re.MULTILINE))
        return
    at = 0
    for sentence in sentences(text):
        at = text.index(sentence, at)
        if len(words(sentence)) > _LONGEST:
            yield at + len(sentence) - len(sentence.lstrip())


def subjects(root: Path, number: int = 200) -> list[Text]:
    """Return the subjects of the last commits; none outside of a repository."""
    command = ["git", "-C", str(root), "log", f"-{number}", "--format=%h %s"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 -- no foreign words
    return [Text(line.partition(" ")[0], 1, COMMITS, line.partition(" ")[2]) for line in done.stdout.splitlines()]


def texts(room: str) -> list[Text]:
    """Read the texts of a room, or the subjects of the last commits."""
    return subjects(ROOT) if room == COMMITS else read(ROOT, room)


def _hits(room: str, pattern: str) -> Iterator[str]:
    for text in texts(room):
        for offset in offsets(text.text, pattern):
            line = text.text[text.text.rfind("\n", 0, offset) + 1 :].partition("\n")[0]
            yield f"{text.path}:{text.line_at(offset)}: {text.kind}: {line.strip()}"


def _table() -> Iterator[str]:
    columns = (*PATTERNS, LONG)
    yield f"{'':<22}{'words':>8}" + "".join(f"{column:>12}" for column in columns)
    for room in (*ROOMS, COMMITS):
        found = texts(room)
        for kind in ("", *(kind for kind in KINDS if room not in ("docs", COMMITS))):
            counts = count([text for text in found if kind in ("", text.kind)])
            rates = "".join(f"{counts.rate(column):>12.1f}" for column in columns)
            if counts.words:
                yield f"{'  ' * bool(kind) + (kind or room):<22}{counts.words:>8}{rates}"


def main(arguments: Sequence[str]) -> int:
    """Print the table or a list of hits; return the exit code."""
    parser = argparse.ArgumentParser(description="Count turns of phrase per 10,000 words.")
    parser.add_argument("--list", nargs=2, metavar=("ROOM", "PATTERN"), help="print path:line of each hit")
    options = parser.parse_args(arguments)
    if options.list and (options.list[0] not in (*ROOMS, COMMITS) or options.list[1] not in (*PATTERNS, LONG)):
        parser.error(f"rooms: {', '.join((*ROOMS, COMMITS))}; patterns: {', '.join((*PATTERNS, LONG))}")
    for line in _hits(*options.list) if options.list else _table():
        print(line)  # noqa: T201 -- a command line
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
