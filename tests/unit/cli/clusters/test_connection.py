"""A kubeconfig that cannot be used, and what it leads to: one line that names the cause, and nothing of the file."""

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from email.utils import formatdate
from pathlib import Path

import pytest
from gkm.kube.errors import ApiError
from gkm_cli.clusters import connection
from gkm_cli.clusters.connection import ClusterConnection, connected
from gkm_cli.clusters.options import ClusterOptions
from support.cli.command import gkm, gkm_in_this_process
from support.kube import kubeconfigs
from support.kube.fake_api import FakeApi
from support.kube.raw_server import UNAUTHORIZED, RawServer, response

SECRET = "s3cr3t-t0k3n"


def test_pods_that_may_not_be_listed_are_a_missing_right_for_gkm_uninstall(monkeypatch: pytest.MonkeyPatch) -> None:
    api = FakeApi()
    api.fault = lambda verb, plural: ApiError(403, "Forbidden", f"cannot {verb} {plural}")
    monkeypatch.setattr(connection, "connected", lambda *_: ClusterConnection(api, "default"))
    done = gkm_in_this_process("uninstall", "--check")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: missing right: list pods in all namespaces; ask"), "it has no next step"


@pytest.fixture(scope="module")
def refusing() -> Iterator[str]:
    """The URL of an API server that accepts no credentials."""
    with RawServer.start(lambda _: UNAUTHORIZED) as server:
        yield server.url


def failed(path: Path) -> str:
    """Return the line of a command with a kubeconfig."""
    done = gkm("cache", "list", "--kubeconfig", path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert SECRET not in done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (f"token: &a [*a {SECRET}", "it is no YAML (line 1)"),
        (f"contexts:\n\t- {SECRET}", "it is no YAML (line 2)"),
        (f"clusters: 5\nusers: {SECRET}\ncontexts: {{a: 1}}\n", "not the form of a kubeconfig"),
        ("", "kubeconfig"),
        ("\x00\xff", "no YAML"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_one_line_without_its_content(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    assert words in failed(path)


def test_a_directory_is_named_with_the_cause(tmp_path: Path) -> None:
    assert f"{tmp_path}: Is a directory" in failed(tmp_path)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            "printf 'no such \\033[31mprofile\\nat all' >&2; exit 3",
            "process returned 3. no such \\x1b[31mprofile at all",
        ),
        ("exit 4", "process returned 4"),
        ("echo nothing", "failed to decode process output"),
        ("head -c 100000 /dev/zero | tr '\\0' x >&2; exit 1", "process returned 1. xxx"),
    ],
)
def test_a_credential_program_that_fails_is_the_cause_of_a_refusal(
    tmp_path: Path, refusing: str, script: str, words: str
) -> None:
    program = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script]}
    line = failed(kubeconfigs.write(tmp_path / "config", refusing, {"exec": program}))
    assert words in line
    assert "the program that the kubeconfig names" in line
    assert len(line) < 600


def test_refused_credentials_without_such_a_program_ask_for_a_login(tmp_path: Path, refusing: str) -> None:
    assert "log in again" in failed(kubeconfigs.write(tmp_path / "config", refusing, {"token": SECRET}))


DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("date", "ahead"),
    [
        (lambda: formatdate(time.time() + DAY.total_seconds(), usegmt=True), DAY),
        (lambda: formatdate(time.time() - DAY.total_seconds(), usegmt=True), -DAY),
        (lambda: "soon", timedelta(0)),
        (lambda: "Mon, 99 Nov 99999 99:99:99 GMT", timedelta(0)),
        (lambda: "Mon, 23 Nov 2026 10:00:00 -0000", timedelta(0)),
    ],
)
def test_the_time_of_the_api_server_counts(tmp_path: Path, date: Callable[[], str], ahead: timedelta) -> None:
    with RawServer.start(lambda _: response("200 OK", b"{}", Date=date())) as server:
        path = kubeconfigs.write(tmp_path / "config", server.url, {"token": SECRET})
        connection = connected(ClusterOptions(kubeconfig=str(path), context=None))
    # The header has whole seconds.
    assert abs(connection.ahead - ahead) < timedelta(minutes=1)
