"""The C compiler runs once for all tests that load a library of a vendor."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.fakes import nvml_library
from support.peers import require


def test_a_second_build_starts_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require.gcc()
    started: list[list[str]] = []
    run = subprocess.run

    def counted(words: list[str], **rest: Any) -> subprocess.CompletedProcess[str]:  # noqa: ANN401 -- of subprocess
        started.append(words)
        return run(words, **rest)

    monkeypatch.setattr(subprocess, "run", counted)
    monkeypatch.setenv("GKM_PEERS_CACHE", str(tmp_path / "peers"))
    made = nvml_library.build()
    assert (made / "libnvidia-ml.so.1").exists()
    assert nvml_library.build() == made
    assert len(started) == 1
