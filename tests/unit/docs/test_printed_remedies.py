"""Every command that a next step of ours prints exists, parses with all that it requires, and runs."""

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import man_pages
import pytest
from gkm.kube import client
from gkm_cli.clusters import connection
from gkm_cli.clusters.connection import KubeconfigSelection
from support.cli.command import CACHE, KEY, gkm, gkm_in_this_process, pushed
from support.cli.plan_files import PlanWorkspace
from support.docs.printed_commands import texts
from support.kube.fake_api import FakeApi
from support.registry.auth import Auth
from support.registry.server import Registry
from typer._click.exceptions import MissingParameter, NoSuchOption

COMMANDS: dict[tuple[str, ...], Any] = {tuple(words): command for words, command in man_pages.commands()}
GROUPS = {path for path, command in COMMANDS.items() if man_pages.names(command)}
NAMED = re.compile(r"(?<![\w/.-])gkm ((?:[a-z]+)(?: [a-z]+)?)")
WHOLE = re.compile(r"(?:: |`|\| )(gkm (?!rewrites)[^`;,()]*?)(?:`|$)")
"""A command line that ends a text, or stands in backticks."""


def remedies() -> list[tuple[str, str]]:
    """Return each command line that has an argument or an option; the others name a command."""
    lines = [(place, line.strip()) for place, text in texts() for line in WHOLE.findall(text)]
    return [(place, line) for place, line in lines if _path(line) != tuple(shlex.split(line)) or len(_path(line)) < 2]


def _path(line: str) -> tuple[str, ...]:
    words = shlex.split(line)
    return tuple(words[: max(n for n in range(1, len(words) + 1) if tuple(words[:n]) in COMMANDS)])


def fault(line: str) -> str:
    """Return what is wrong with a whole command line; a value that is a placeholder may be any."""
    words, path = shlex.split(line), _path(line)
    rest = words[len(path) :]
    if path in GROUPS and not (rest and rest[0].startswith("-")):
        return f"no such command: {line}"
    try:
        COMMANDS[path].make_context(path[-1], list(rest))
    except (MissingParameter, NoSuchOption) as error:
        return str(error)
    except Exception:  # noqa: BLE001 -- a placeholder is no file and no number
        return ""
    return ""


class DatedApi(FakeApi):
    """The API in memory, with the header Date of an API server that sends none."""

    date = ""


OUTPUTS = {"gkm plan -o json", "gkm cache build --to"}
"""Lines that name what made a file, with the file's option; they are no next step."""
SECRET = "a-secret"


def filled(line: str, directory: Path, image: str) -> list[str]:
    """Return the words of a line with a fitting value for each placeholder."""
    config, key = directory / "config.yaml", directory / "key.pub"
    key.write_bytes(KEY.public_pem)
    policy = {"images": ["**"], "keys": [str(key)]}
    config.write_text(json.dumps({"verification": {"policies": [policy]}}))
    files = {"--config": str(config), "--run": str(PlanWorkspace(directory).run)}
    values = {"verify": image, "build": str(CACHE), "-n": "default", "login": image.partition("/")[0]}
    values["tags"] = image.partition("@")[0]
    words = shlex.split(line)[1:]
    for at, word in enumerate(words):
        if word in ("VALUE", "FILE"):
            words[at] = (values | files)[words[at - 1]]
    return [{"USER": "robot", "REF": "registry.example/team/caches/a:1"}.get(word, word) for word in words]


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    with Registry.start() as registry:
        yield pushed(registry)


@pytest.mark.parametrize(("place", "line"), [each for each in remedies() if each[1] not in OUTPUTS])
def test_a_printed_command_line_runs(
    place: str, line: str, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = DatedApi()
    api.create(connection.NAMESPACES, {"metadata": {"name": "default"}})
    monkeypatch.setattr(connection, "choose", lambda *_: KubeconfigSelection("", None, "default"))
    monkeypatch.setattr(client, "connect", lambda *_, **__: api)
    monkeypatch.setenv("HOME", str(tmp_path))
    done = gkm_in_this_process(*filled(line, tmp_path, image))
    # Without a terminal, the command names its next step: test_the_line_of_a_refused_pull_opens_the_registry.
    is_accepted = "there is no terminal to ask for the password" in done.stderr
    assert is_accepted or done.returncode in (0, 1, 3), (place, done.stderr)


def test_a_line_without_what_it_needs_is_found(image: str, tmp_path: Path) -> None:
    # Each was printed once; both pass the parser.
    for line, why in (("gkm cache build VALUE", "add --image"), ("gkm plan", "no run is given")):
        done = gkm_in_this_process(*filled(line, tmp_path, image))
        assert done.returncode == 2
        assert why in done.stderr


def test_the_line_of_a_refused_pull_opens_the_registry(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path)}
    with Registry.start(auth=Auth("robot", SECRET)) as registry:
        look = ("cache", "inspect", f"{registry.host}/team/x:1", "--plain-http")
        (line,) = WHOLE.findall(gkm(*look, env=environment).stderr.strip())
        words = [{"USER": "robot"}.get(word, word) for word in shlex.split(line)[1:]]
        # The login goes to the registry as the pull did.
        done = gkm(*words, "--plain-http", "--password-stdin", env=environment, typed=SECRET.encode())
        assert (done.returncode, done.stderr) == (0, "")
        assert "does not exist in its registry" in gkm(*look, env=environment).stderr


def test_the_line_for_a_directory_that_is_one_level_too_high_builds(tmp_path: Path) -> None:
    place = tmp_path / "a b"
    shutil.copytree(CACHE, place / "cache")
    refused = gkm("cache", "build", place, "--image", "registry.example/a:1", "--dry-run")
    assert refused.returncode == 1
    (line,) = WHOLE.findall(refused.stderr.strip())
    done = gkm(*({"REF": "registry.example/a:1"}.get(word, word) for word in shlex.split(line)[1:]))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("place", "line"), remedies())
def test_a_printed_command_line_parses(place: str, line: str) -> None:
    assert fault(line) == "", place


def test_each_command_that_a_text_names_exists() -> None:
    areas = {path[1] for path in COMMANDS if len(path) > 1}
    wrong = [
        (place, words)
        for place, text in texts()
        for words in NAMED.findall(text)
        if words.split()[0] in areas
        and ("gkm", words.split()[0]) in GROUPS
        and len(words.split()) > 1
        and ("gkm", *words.split()) not in COMMANDS
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("line", "why"),
    [("gkm login VALUE", "Missing"), ("gkm cache lst", "no such"), ("gkm why --nope", "No such option")],
)
def test_a_line_that_does_not_run_is_found(line: str, why: str) -> None:
    assert why.lower() in fault(line).lower()


def test_there_are_such_lines() -> None:
    assert len(remedies()) >= 8


def test_a_wrong_value_has_no_words_of_a_library() -> None:
    done = gkm("cache", "list", "-o", "foo")
    assert (done.returncode, done.stderr.partition(";")[0]) == (
        2,
        "error: Invalid value for '-o' / '--output': 'foo' is not one of 'table', 'json', 'yaml'",
    )
