"""`-v` and `--timeout`: on every command that talks to a server; what they log, and how they end a command."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import man_pages
import pytest
import typer
from gkm_cli.calls import CallOptions, seconds
from support.cli.command import SECONDS, gkm
from support.cli.fixtures import image, pushed_once, registry_server
from support.kube import kubeconfigs
from support.kube.raw_server import UNAUTHORIZED, Answer, RawServer
from support.registry import faults
from support.registry.server import Registry

__all__ = ["image", "pushed_once", "registry_server"]
SECRET = "s3cr3t-t0k3n"
LATE = "error: the command did not end within 1 seconds; give it more --timeout or none, or see its requests with -v\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90", 90.0), ("90s", 90.0), ("1.5m", 90.0), ("2h", 7200.0), ("250ms", 0.25), ("168h", 604_800.0)],
)
def test_a_duration_has_a_unit_or_is_in_seconds(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "0", "-1", "1d", "s", "1 s", "1e9", "169h", "nan", "inf", "٣", "1h30m"])
def test_what_is_no_duration_is_wrong_usage(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="write a time such as 30s"):
        seconds(text)


def test_a_wrong_duration_is_one_line() -> None:
    done = gkm("cache", "tags", "registry.example/team/a", "--timeout", "soon")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "--timeout" in done.stderr
    assert "write a time such as 30s, 5m or 1h" in done.stderr


def test_every_command_that_talks_to_a_server_has_both_options_once_and_no_other_has_one() -> None:
    found = {
        " ".join(words): [name for name, _ in man_pages.options(command)] for words, command in man_pages.commands()
    }
    talking = {
        words
        for words, names in found.items()
        if {"--plain-http", "--kubeconfig FILE"} & {name.split(", ")[-1] for name in names}
    }
    assert {
        "gkm cache push",
        "gkm exec",
        "gkm login",
        "gkm plan",
        "gkm topology show",
        "gkm doctor",
        "gkm why",
    } <= talking
    for words, names in found.items():
        own = [name for name in names if name in ("-v, --verbose", "--timeout TIME")]
        assert own == (["-v, --verbose", "--timeout TIME"] if words in talking else []), words


def test_a_registry_that_is_silent_ends_with_the_time_of_the_command(registry_server: Registry, image: str) -> None:
    registry_server.misbehave(faults.stalled("tags/list"))
    done = gkm("cache", "tags", image.partition("@")[0], "--plain-http", "--timeout", "1s")
    assert (done.returncode, done.stdout, done.stderr) == (124, "", LATE)


def test_a_comparison_that_has_no_time_does_not_say_that_images_differ(registry_server: Registry, image: str) -> None:
    registry_server.misbehave(faults.stalled("manifests/"))
    done = gkm("cache", "diff", image, image, "--plain-http", "--timeout", "1s")
    assert (done.returncode, done.stdout, done.stderr) == (124, "", LATE)


def test_an_api_server_that_is_silent_ends_with_the_time_of_the_command(tmp_path: Path) -> None:
    with RawServer.start(lambda _: Answer(b"", "silence")) as server:
        path = kubeconfigs.write(tmp_path / "config", server.url, {"token": SECRET})
        done = gkm("cache", "list", "--kubeconfig", path, "--timeout", "1s")
    assert (done.returncode, done.stdout, done.stderr) == (124, "", LATE)


STUBBORN = """
import time
from gkm_cli import calls
calls.GRACE_SECONDS = 0.2
with calls.CallOptions(timeout=0.2).applied():
    try:
        time.sleep(600)
    except BaseException:
        time.sleep(600)
"""


def test_what_ignores_the_alarm_ends_with_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STUBBORN], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert (done.returncode, done.stderr) == (124, LATE.replace("1 seconds", "0.2 seconds"))


def test_after_a_command_there_is_no_alarm() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with CallOptions(timeout=600.0).applied():
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is before


def logged(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def test_each_request_to_a_registry_is_logged_without_a_secret(registry_server: Registry, image: str) -> None:
    name = image.partition("@")[0]
    quiet = gkm("cache", "tags", name, "--plain-http", "-o", "json")
    loud = gkm("cache", "tags", name, "--plain-http", "-o", "json", "-v")
    assert (quiet.stderr, loud.stdout, loud.returncode) == ("", quiet.stdout, 0)
    lines = logged(loud.stderr)
    assert {"GET"} == {line["method"] for line in lines}
    assert ("/v2/team/vector-add/tags/list", 200) in {(line["path"], line["status"]) for line in lines}
    assert {line["host"] for line in lines} == {registry_server.host.partition(":")[0]}


def test_the_address_of_a_redirect_is_not_logged(registry_server: Registry, image: str) -> None:
    with Registry.start() as other:
        registry_server.misbehave(faults.redirected("blobs/", f"http://{other.host}/signed/{SECRET}?sig={SECRET}"))
        done = gkm("cache", "inspect", image, "--plain-http", "-v")
    assert done.returncode == 1
    assert 307 in {line["status"] for line in logged(done.stderr)}
    assert SECRET not in done.stderr


def test_each_request_to_an_api_server_is_logged_without_a_secret(tmp_path: Path) -> None:
    with RawServer.start(lambda _: UNAUTHORIZED) as server:
        path = kubeconfigs.write(tmp_path / "config", server.url, {"token": SECRET})
        done = gkm("cache", "list", "--kubeconfig", path, "--verbose")
    (line, *_) = logged(done.stderr)
    assert (line["event"], line["method"], line["status"]) == ("request to the API server", "GET", 401)
    assert SECRET not in done.stderr
