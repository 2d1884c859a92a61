"""The command line: flags and their twins, the configuration, logs, and how a process ends."""

import argparse
import json
import logging
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from gkm.api import config
from gkm.api.config import ConfigInvalid
from gkm.hoststate.command_line import Parser
from gkm.hoststate.logs import JsonFormatter
from gkm.kube.resources import MUTATING_WEBHOOKS
from gkm.probes import addresses
from gkm_operator.health import health_server
from gkm_operator.main import add_admission_flags
from gkm_operator.webhooks import WebhookConfiguration
from support.host.waiting import scaled
from support.operator.command_line import called
from support.operator.deployment import ROOT


def test_a_configuration_is_checked_without_a_cluster(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text("verification: {mode: warn}\n", encoding="utf-8")
    bad.write_text("verification: {mode: warn, polices: []}\n", encoding="utf-8")
    assert called("controllers", "--check-config", f"--config={good}") == (
        0,
        "gkm-operator: the configuration is good\n",
    )
    assert called("admission", "--check-config", GKM_CONFIG=str(good))[0] == 0
    code, said = called("admission", "--check-config", f"--config={bad}")
    assert code == 2
    assert said.strip() == (
        f"gkm-operator: configuration {bad}: Object contains unknown field `polices` - at `$.verification`; "
        "`policies` may be meant"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "required: command"),
        (("admission",), "use either --tls-cert"),
        (("admission", "--tls-cert=x"), "go together"),
        (("admission", "--self-signed=d", "--tls-cert=x", "--tls-key=y"), "use either --tls-cert"),
        (("admission", "--tls-cert=x", "--tls-key=y", "--webhook-configuration=w"), "needs --self-signed"),
        (("admission", "--self-signed=d"), "needs --webhook-configuration"),
        (("admission", "--self-signed=d", "--webhook-configuration=role/w"), "mutating/NAME"),
        (("admission", "--self-signed=d", "--domains=yes"), "on or off"),
        (("admission", "--self-signed=d", "--budget=60"), "between 0 and 8"),
        (("admission", "--self-signed=d", "--listen=nowhere"), "is not host:port"),
    ],
)
def test_a_wrong_command_line_is_reported_in_one_line(arguments: tuple[str, ...], said: str) -> None:
    code, output = called(*arguments)
    assert code == 2
    assert said in output.splitlines()[-1]


def test_a_flag_wins_over_its_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GKM_LISTEN", ":1")
    parser = Parser()
    add_admission_flags(parser)
    assert parser.parse_args([]).listen == ("", 1)  # every address, of both families
    assert parser.parse_args(["--listen=[::1]:2"]).listen == ("::1", 2)


def test_a_repeated_configuration_is_added_and_replaces_those_of_the_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GKM_WEBHOOK_CONFIGURATION", "x,mutating/y")
    parser = Parser()
    add_admission_flags(parser)
    both = (WebhookConfiguration("x"), WebhookConfiguration("y", MUTATING_WEBHOOKS))
    flags = ["--webhook-configuration=mutating/y", "--webhook-configuration=z"]
    assert parser.parse_args([]).webhook_configuration == both
    assert parser.parse_args(flags).webhook_configuration == (both[1], WebhookConfiguration("z"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "'' is not host:port"),
        ("host", "'host' is not host:port"),
        ("host:", "'host:' is not host:port"),
        ("host:x", "'host:x' is not host:port"),
        ("host:70000", "the last port is 65535"),
    ],
)
def test_an_invalid_address_is_refused(text: str, problem: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=problem):
        addresses.parse(text)


def test_an_unreadable_configuration_reports_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigInvalid, match="No such file"):
        config.load(tmp_path / "none")
    monkeypatch.setattr(config, "MAX_BYTES", 3)
    with pytest.raises(ConfigInvalid, match="larger than"):
        config.load(ROOT / "pyproject.toml")
    assert config.load(None).verification.mode == "enforce"


def test_a_log_line_is_json_with_its_fields() -> None:
    record = logging.makeLogRecord(
        {"msg": "looked at %s", "args": ("x",), "levelname": "INFO", "cache": "a/b", "path": Path("/p"), "n": 1}
    )
    line = JsonFormatter().format(record)
    read = json.loads(line)
    assert "\n" not in line
    assert {"level": "info", "event": "looked at x", "cache": "a/b", "path": "/p", "n": 1}.items() <= read.items()
    try:
        int("first\nsecond")
    except ValueError as error:
        record.exc_info = (type(error), error, error.__traceback__)
    assert "first" in json.loads(JsonFormatter().format(record))["traceback"]


def test_health_is_served_until_it_is_closed() -> None:
    ready: list[str] = []
    server = health_server(("127.0.0.1", 0), lambda: bool(ready))
    server.start()
    base = f"http://127.0.0.1:{server.port}"

    def status(path: str) -> int:
        try:
            with urllib.request.urlopen(base + path, timeout=scaled(10)) as answer:  # noqa: S310 -- loopback
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    assert [status(path) for path in ("/healthz", "/readyz", "/")] == [200, 503, 404]
    ready.append("yes")
    assert status("/readyz") == 200
    server.close()
    with pytest.raises(urllib.error.URLError, match="Connection refused"):
        status("/healthz")
