"""The steps of a long test with what each took and found: for people, beside the assertions."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

BUILD = Path(__file__).resolve().parents[3] / "build" / "e2e"


@dataclass
class Transcript:
    """Writes build/e2e/<name>.txt line by line, so that a step that hangs is the last one in it."""

    name: str
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        BUILD.mkdir(parents=True, exist_ok=True)
        self._file.write_text("")

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Write the title of a step, and how many seconds it took if it succeeded."""
        began = time.monotonic()
        self.write(f"\n== {title}")
        yield
        now = time.monotonic()
        self.write(f"   {now - began:.1f} s, {now - self.began:.1f} s in all")

    def write(self, text: str) -> None:
        """Add lines."""
        with self._file.open("a", encoding="utf-8") as file:
            file.write(f"{text.rstrip()}\n")

    @property
    def _file(self) -> Path:
        return BUILD / f"{self.name}.txt"
