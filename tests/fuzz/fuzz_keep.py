"""`fuzz_keep.py NAME`: take into the corpus what a run has found, as far as it reaches something new; say what is left.

What counts is which lines of `gkm` follow which, and how the target ends. Small inputs come first, so a large one is
kept only for what no smaller one does. Then it prints the lines of the modules reached that nothing has run.
"""

import hashlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from fuzz_run import BUILD, CORPUS, PACKAGES
from fuzz_targets import TARGETS, quiet

MAX_KEPT_BYTES = 2048
MAX_KEPT = 40
Edge = tuple[str, int, int]


@dataclass
class Trace:
    """Which line followed which, in the modules of ours."""

    edges: set[Edge] = field(default_factory=set)
    codes: set[CodeType] = field(default_factory=set)

    def of(self, target: Callable[[bytes], None], data: bytes) -> set[Edge]:
        """Run a target and return what it ran."""
        self.edges = set()
        sys.settrace(self._enter)
        try:
            target(data)
        finally:
            sys.settrace(None)
        return self.edges

    def _enter(self, frame: FrameType, _event: str, _argument: object) -> Any:  # noqa: ANN401 -- what settrace wants
        if not any(f"/{package}/" in frame.f_code.co_filename for package in PACKAGES):
            return None
        self.codes.add(frame.f_code)
        before = 0

        def line(inner: FrameType, event: str, _argument: object) -> Any:  # noqa: ANN401
            nonlocal before
            if event == "line":
                self.edges.add((inner.f_code.co_filename, before, inner.f_lineno))
                before = inner.f_lineno
            return line

        return line

    def left(self, ran: set[Edge]) -> dict[str, list[int]]:
        """Return the lines of the functions entered that nothing ran, by file."""
        lines = {(name, line) for name, _, line in ran}
        left: dict[str, list[int]] = {}
        for code in self.codes:
            here = {number for _, _, number in code.co_lines() if number and number != code.co_firstlineno}
            for number in sorted(number for number in here if (code.co_filename, number) not in lines):
                left.setdefault(code.co_filename, []).append(number)
        return left


def main(name: str) -> None:
    """Keep what is useful of the target's finds."""
    target, trace = quiet(TARGETS[name]), Trace()
    ran: set[Edge] = set()
    for seed in sorted((CORPUS / name).iterdir()):
        ran |= trace.of(target, seed.read_bytes())
    found = sorted((path.read_bytes() for path in (BUILD / name).iterdir()), key=len)
    kept = 0
    for data in found:
        edges = trace.of(target, data)
        if not edges <= ran and len(data) <= MAX_KEPT_BYTES and kept < MAX_KEPT:
            (CORPUS / name / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
            kept += 1
        ran |= edges
    sys.stdout.write(f"{name}: {kept} of {len(found)} kept, {len(ran)} edges\n")
    for path, lines in sorted(trace.left(ran).items()):
        sys.stdout.write(f"  {Path(path).name} never ran: {', '.join(map(str, lines))}\n")


if __name__ == "__main__":
    main(sys.argv[1])
