"""A program without its dependencies says which extra it needs, and its version all the same."""

import pytest
from gkm.hoststate.command_line import installed_version
from gkm.hoststate.extras import needed


def without_dependency() -> None:
    with needed("gkm-agent", "agent"):
        raise ModuleNotFoundError(name="prometheus_client")


def test_the_version_needs_no_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["gkm-agent", "--version"])
    without_dependency()
    assert capsys.readouterr().out == f"gkm-agent {installed_version()}\n"


def test_anything_else_names_the_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["gkm-agent", "--config", "f"])
    with pytest.raises(SystemExit) as caught:
        without_dependency()
    assert caught.value.code == 1
    assert "pip install '.[agent]'" in capsys.readouterr().err
