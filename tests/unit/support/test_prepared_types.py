"""msgspec's types of tests and of benches are prepared before their threads start: an agent_api bench crashed."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
from gkm.api import msgspec_warmup
from gkm.hoststate import logs
from msgspec import Struct
from support.operator import webhook_process

ROOT = Path(__file__).resolve().parents[3]
BENCH = """
from types import SimpleNamespace

from gkm.api import msgspec_warmup
from msgspec import Struct

SMALLEST = None

class Measured(Struct):
    seconds: float

def run(_size):
    figures = {"unprepared": int(Measured in msgspec_warmup.unprepared())}
    return SimpleNamespace(figures=figures, rows=[], table=lambda: "")
"""


class Imported(Struct):
    """A type of a module that pytest imports."""

    seconds: float


def test_the_types_of_imported_tests_are_prepared() -> None:
    assert Imported not in msgspec_warmup.unprepared()


def test_the_types_of_a_bench_are_prepared_before_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bench_measured.py").write_text(BENCH)
    monkeypatch.syspath_prepend(tmp_path)
    spec = importlib.util.spec_from_file_location("bench_runner", ROOT / "bench" / "run.py")
    assert spec is not None
    assert spec.loader is not None
    runner = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(runner)
    monkeypatch.setattr(runner, "BENCHES", ("measured",))
    monkeypatch.setattr(sys, "argv", ["run.py", "--smallest", "--output", str(tmp_path), "measured"])
    assert runner.main() == 0
    assert json.loads((tmp_path / "measured.json").read_text())["figures"] == {"unprepared": 0}


def test_the_types_of_the_webhook_process_are_prepared_before_it_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Later(Struct):
        """A type that this process has not prepared."""

        seconds: float

    unprepared: list[set[type[Struct]]] = []
    monkeypatch.setattr(webhook_process, "serve", lambda *_: unprepared.append(msgspec_warmup.unprepared()))
    monkeypatch.setattr(logs, "configure", lambda: None)
    monkeypatch.setattr(sys, "argv", ["webhook_process.py", str(tmp_path)])
    assert Later in msgspec_warmup.unprepared()
    webhook_process.main()
    assert unprepared == [set()], "sixteen threads decode them"
