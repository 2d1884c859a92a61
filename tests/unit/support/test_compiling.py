"""The first of several workers compiles alone; later ones do not wait for each other."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from support.host.compiling import by_one_at_first


def test_one_runs_alone_and_then_all_others_beside_each_other(tmp_path: Path) -> None:
    inside: list[str] = []
    together = Barrier(2, timeout=60)

    def work() -> None:
        with by_one_at_first(tmp_path / "new" / "stamp"):
            is_first = not inside
            inside.append("in")
            if is_first:
                inside.append("out")
            else:
                together.wait()

    with ThreadPoolExecutor(3) as threads:
        for done in [threads.submit(work) for _ in range(3)]:
            done.result()
    assert inside == ["in", "out", "in", "in"]


def test_a_first_one_that_fails_leaves_it_to_the_next(tmp_path: Path) -> None:
    stamp = tmp_path / "stamp"
    with pytest.raises(OSError, match="no space"), by_one_at_first(stamp):
        raise OSError("no space")
    assert not stamp.exists()
    with by_one_at_first(stamp):
        assert not stamp.exists()
    assert stamp.exists()
