"""Rules of the Dockerfiles that no build shows."""

import re
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DOCKERFILES = sorted(ROOT.glob("Dockerfile.*"))
PINNED = re.compile(r"ARG BASE=[a-z0-9./:-]+:[a-z0-9.-]+@sha256:[0-9a-f]{64}")
LOCKS = "".join((ROOT / "requirements" / f"{process}.lock").read_text() for process in ("agent", "csi", "operator"))


def entries(name: str) -> list[str]:
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_all_are_of_one_base_that_a_digest_pins() -> None:
    bases = {line for file in DOCKERFILES for line in file.read_text().splitlines() if line.startswith("ARG BASE=")}
    assert len(DOCKERFILES) == 3
    assert len(bases) == 1
    assert PINNED.fullmatch(bases.pop())


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.name)
def test_one_has_no_other_image_no_architecture_and_no_command_for_a_shell(file: Path) -> None:
    text = file.read_text()
    assert set(re.findall(r"(?m)^FROM (\S+)", text)) == {"${BASE}"}
    assert not re.search(r"amd64|x86_64|arm64|aarch64", text)
    assert re.search(r'(?m)^ENTRYPOINT \["/opt/gkm/bin/gkm-[a-z]+"\]$', text)
    assert not re.search(r"(?m)^(CMD|SHELL|HEALTHCHECK)", text)


@pytest.mark.parametrize("name", entries("unused.txt"))
def test_a_distribution_that_is_left_out_is_still_locked(name: str) -> None:
    assert re.search(rf"(?m)^{re.escape(name)}==", LOCKS)


@pytest.mark.parametrize("path", entries("unused-files.txt"))
def test_files_that_are_left_out_still_exist(path: str) -> None:
    assert (Path(sysconfig.get_path("platlib")) / path).exists()
