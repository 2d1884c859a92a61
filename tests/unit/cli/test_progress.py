"""Progress where standard error is no terminal: whole lines, and none from a short command."""

import time

import pytest
from gkm_cli import progress
from gkm_cli.progress import PAUSE_SECONDS, PlainReport, progress_bars, waiting

MIB = 1 << 20


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_line_comes_every_pause_and_not_before_the_first() -> None:
    clock, lines = Clock(), list[str]()
    report = PlainReport(lines.append, clock)
    for second in range(int(3 * PAUSE_SECONDS)):
        clock.now = 100.0 + second
        report("pulling", second * MIB, 20 * MIB)
    assert lines == ["pulling: 25 % of 20.0 MiB", "pulling: 50 % of 20.0 MiB"]


@pytest.mark.parametrize(("done", "total", "expected"), [(3, 2, "100 %"), (0, 0, "100 %"), (1, 3, "33 %")])
def test_a_stage_has_at_most_all_of_its_bytes(done: int, total: int, expected: str) -> None:
    clock, lines = Clock(), list[str]()
    report = PlainReport(lines.append, clock)
    clock.now += PAUSE_SECONDS
    report("pulling", done, total)
    assert expected in lines[0]


def test_in_a_pipe_there_is_no_carriage_return_and_no_escape(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PAUSE_SECONDS", 0.0)
    with progress_bars("packing\x1b[2J") as report:
        report("packing\x1b[2J", 1, 2)
    text = ""
    with waiting("reading the cluster"):
        for _ in range(1000):
            if "reading" in (text := text + capsys.readouterr().err):
                break
            time.sleep(0.01)
    assert text == "packing\\x1b[2J: 50 % of 0.0 MiB\nreading the cluster ...\n"


def test_short_work_prints_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bars("packing") as report, waiting("reading the cluster"):
        report("packing", 1, 1)
    assert capsys.readouterr().err == ""
