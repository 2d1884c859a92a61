"""What `gkm cache list` prints when there is nothing to print."""

import pytest
from gkm_cli.cache.list_caches import _print


@pytest.mark.parametrize(("namespace", "words"), [("team", "no caches in the namespace team"), ("", "in the cluster")])
def test_without_caches_it_says_where_it_looked(capsys: pytest.CaptureFixture[str], namespace: str, words: str) -> None:
    _print([], namespace, is_complete=True)
    assert words in capsys.readouterr().out


def test_caches_that_cannot_be_read_are_not_no_caches(capsys: pytest.CaptureFixture[str]) -> None:
    _print([], "team", is_complete=False)
    assert capsys.readouterr().out == ""
