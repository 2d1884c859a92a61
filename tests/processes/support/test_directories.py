"""A value for the tests of a directory, in a session of pytest with two directories."""

import os
import subprocess
import sys
from pathlib import Path

SUPPORT = Path(__file__).resolve().parents[2]
CONFTEST = """
from contextlib import contextmanager
import pytest
from support.host.directories import of_directory

@pytest.fixture(scope="module")
def value(request):
    @contextmanager
    def opened():
        print("begins")
        yield object()
        print("ends")
    return of_directory(request, opened)
"""
USER = """
def test_it(value):
    print(__name__, id(value))
"""


def test_the_modules_of_a_directory_share_it_and_it_ends_before_the_next_directory(tmp_path: Path) -> None:
    for name in ("first/test_a.py", "first/test_b.py", "second/test_c.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(USER)
        (path.parent / "conftest.py").write_text(CONFTEST)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:randomly", "-p", "no:cacheprovider", "."]
    environment = os.environ | {"PYTHONPATH": str(SUPPORT), "PYTEST_ADDOPTS": ""}
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    told = [line.lstrip(".").split() for line in done.stdout.splitlines() if line.lstrip(".")]
    values = [words[1] for words in told if words[0] in {"test_a", "test_b"}]
    assert [words[0] for words in told[:7]] == ["begins", "test_a", "test_b", "ends", "begins", "test_c", "ends"]
    assert values[0] == values[1]
