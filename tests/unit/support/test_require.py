"""An absent partner is skipped in one line, and fails where nothing may be absent."""

import os

import pytest
from support.peers import require
from support.peers.missing import Missing


def test_what_is_absent_is_skipped_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GKM_TIER", raising=False)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"^needs no-such-tool \(Debian: nothing\)$"):
        require.command("no-such-tool", "nothing")


def test_with_ci_set_what_is_absent_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GKM_TIER", raising=False)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no-such-tool"):
        require.command("no-such-tool", "nothing")


def test_what_the_testbed_misses_is_an_absence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"^a partner is not here$"), require.absences():
        raise Missing("a partner is not here")


def test_without_root_a_test_that_needs_it_is_left_out_also_with_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(pytest.skip.Exception, match=r"^needs root$"):
        require.root()
