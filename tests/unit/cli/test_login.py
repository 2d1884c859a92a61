"""`gkm login`, `gkm logout`: the registry decides, passwords come by standard input and are in the file of docker."""

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cli.command import gkm
from support.images.private_registry import SECRET, private
from support.registry.auth import Auth
from support.registry.server import Registry


@pytest.fixture(params=[True, False], ids=["token", "basic"])
def registry(request: pytest.FixtureRequest) -> Iterator[Registry]:
    with private(Auth("robot", SECRET, bearer=request.param)) as made:
        yield made


def login(
    home: Path, *arguments: str, password: str | bytes = SECRET, variables: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return run(home, "login", *arguments, "--plain-http", password=password, variables=variables)


def logout(home: Path, registry: str, variables: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return run(home, "logout", registry, password="", variables=variables)


def run(
    home: Path, *arguments: str, password: str | bytes, variables: dict[str, str] | None
) -> subprocess.CompletedProcess[str]:
    others = {name: value for name, value in os.environ.items() if name not in ("DOCKER_CONFIG", "REGISTRY_AUTH_FILE")}
    environment = {**others, "HOME": str(home), **(variables or {})}
    raw = password.encode() if isinstance(password, str) else password
    return gkm(*arguments, env=environment, typed=raw)


def auth(user: str = "robot", password: str = SECRET) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


def inspect(home: Path, registry: Registry) -> int:
    environment = {**os.environ, "HOME": str(home)}
    done = gkm("cache", "inspect", f"{registry.host}/team/x:1", "--plain-http", env=environment)
    assert done.returncode == 1
    is_open = "it is no cache image" in done.stderr
    assert is_open != ("denies access" in done.stderr), done.stderr
    return 0 if is_open else 1


def test_a_login_is_stored_for_its_owner_and_opens_the_registry(registry: Registry, tmp_path: Path) -> None:
    assert inspect(tmp_path, registry) == 1
    done = login(tmp_path, registry.host, "-u", "robot", "--password-stdin", password=f"{SECRET}\n")
    file = tmp_path / ".docker" / "config.json"
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"logged in to {registry.host}; the login is in {file}\n"
    assert json.loads(file.read_text()) == {"auths": {registry.host: auth()}}
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o077) == (0o600, 0)
    assert inspect(tmp_path, registry) == 0
    again = login(tmp_path, registry.host, "-u", "robot", "--password-stdin", "-o", "json")
    assert json.loads(again.stdout) == {"registry": registry.host, "username": "robot", "stored": str(file)}


@pytest.mark.parametrize(("user", "password"), [("robot", "wrong"), ("stranger", SECRET)])
def test_a_refused_login_is_not_stored(registry: Registry, tmp_path: Path, user: str, password: str) -> None:
    done = login(tmp_path, registry.host, "-u", user, "--password-stdin", password=password)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr == (
        f"error: registry {registry.host} refuses the login; check user and password; some registries want a token\n"
    )
    assert not (tmp_path / ".docker").exists()


def test_everything_else_in_the_file_stays(registry: Registry, tmp_path: Path) -> None:
    file = tmp_path / "real.json"
    before: dict[str, dict[str, object]] = {
        "auths": {"other.example": auth("a", "b")},
        "HttpHeaders": {"X": "y"},
        "proxies": {"default": {"noProxy": "z"}},
    }
    file.write_text(json.dumps(before))
    (tmp_path / ".docker").mkdir()
    link = tmp_path / ".docker" / "config.json"
    link.symlink_to(file)
    assert login(tmp_path, registry.host, "-u", "robot", "--password-stdin").returncode == 0
    assert link.is_symlink()
    assert json.loads(file.read_text()) == {**before, "auths": {**before["auths"], registry.host: auth()}}


@pytest.mark.parametrize("setting", ["credsStore", "credHelpers"])
def test_a_credential_helper_gets_the_login_and_the_file_does_not(
    registry: Registry, tmp_path: Path, setting: str
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    helper = programs / "docker-credential-safe"
    helper.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/arguments; cat > {tmp_path}/stored\n')
    helper.chmod(0o755)
    config = {"credsStore": "safe"} if setting == "credsStore" else {"credHelpers": {registry.host: "safe"}}
    file = tmp_path / "docker" / "config.json"
    file.parent.mkdir()
    file.write_text(json.dumps(config))
    variables = {"DOCKER_CONFIG": str(file.parent), "PATH": f"{programs}:{os.environ['PATH']}"}
    done = login(tmp_path, registry.host, "-u", "robot", "--password-stdin", variables=variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert "docker-credential-safe" in done.stdout
    assert (tmp_path / "arguments").read_text() == "store\n"
    assert json.loads((tmp_path / "stored").read_text()) == {
        "ServerURL": registry.host,
        "Username": "robot",
        "Secret": SECRET,
    }
    assert json.loads(file.read_text()) == {**config, "auths": {registry.host: {}}}


def test_a_helper_that_fails_is_one_line_without_the_password(registry: Registry, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    helper = programs / "docker-credential-safe"
    helper.write_text("#!/bin/sh\ncat; exit 1\n")
    helper.chmod(0o755)
    file = tmp_path / "auth.json"
    file.write_text('{"credsStore": "safe"}')
    variables = {"REGISTRY_AUTH_FILE": str(file), "PATH": f"{programs}:{os.environ['PATH']}"}
    done = login(tmp_path, registry.host, "-u", "robot", "--password-stdin", variables=variables)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert SECRET not in done.stderr
    assert "docker-credential-safe failed: it exited with 1" in done.stderr
    assert file.read_text() == '{"credsStore": "safe"}'


@pytest.mark.parametrize(
    ("arguments", "password", "words"),
    [
        (["registry.example", "-u", "robot"], SECRET, "no terminal"),
        (["registry.example"], SECRET, "Missing option"),
        (["registry.example", "-u", "robot", "-p", SECRET], "", "No such option"),
        (["registry.example", "-u", "robot", "--password-stdin"], "", "empty"),
        (["registry.example", "-u", "a:b", "--password-stdin"], SECRET, "colon"),
        (["registry.example/team", "-u", "robot", "--password-stdin"], SECRET, "without a repository"),
        (["regis\x1b[31mtry", "-u", "robot", "--password-stdin"], SECRET, "is not a registry; write host or host:port"),
    ],
)
def test_wrong_usage_is_one_line(tmp_path: Path, arguments: list[str], password: str, words: str) -> None:
    done = login(tmp_path, *arguments, password=password)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert words in done.stderr
    assert SECRET not in done.stderr


@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
@pytest.mark.parametrize(
    ("password", "why"),
    [
        (b"pass\xffword\n", "is not text in UTF-8"),
        (b"pass\nword", "has more than one line"),
        (b"pass\rword\n", "has more than one line"),
        (b"a" * (64 << 10) + b"\xc3\xa4", "too long"),
    ],
)
def test_a_password_that_is_not_one_line_of_text_is_wrong_usage(
    tmp_path: Path, password: bytes, why: str, locale: str
) -> None:
    variables = {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = login(
        tmp_path, "registry.example", "-u", "robot", "--password-stdin", password=password, variables=variables
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert why in done.stderr, done
    assert "pass\\" not in done.stderr
    assert not (tmp_path / ".docker").exists()


def test_a_user_that_is_not_text_is_wrong_usage(tmp_path: Path) -> None:
    done = login(tmp_path, "registry.example", "-u", os.fsdecode(b"rob\xffot"), "--password-stdin")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "the user or the password is not text in UTF-8" in done.stderr


def test_a_password_may_have_any_character(registry: Registry, tmp_path: Path) -> None:
    done = login(tmp_path, registry.host, "-u", "robot", "--password-stdin", password="pässwörd\r\n")
    assert "refuses the login" in done.stderr


@pytest.mark.parametrize("content", ["[", "[1]", '{"auths": 1}', "x" * (1 << 20)])
def test_a_file_that_is_none_stays_as_it_is(registry: Registry, tmp_path: Path, content: str) -> None:
    file = tmp_path / "auth.json"
    file.write_text(content)
    done = login(
        tmp_path, registry.host, "-u", "robot", "--password-stdin", variables={"REGISTRY_AUTH_FILE": str(file)}
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert str(file) in done.stderr
    assert file.read_text() == content


def test_a_login_makes_the_file_that_the_variable_names(registry: Registry, tmp_path: Path) -> None:
    """Each command says of a missing file: log in. The login said so too, and ended."""
    file = tmp_path / "new.json"
    variables = {"REGISTRY_AUTH_FILE": str(file)}
    gone = logout(tmp_path, registry.host, variables)
    assert (gone.returncode, gone.stdout) == (0, f"there was no login for {registry.host}\n"), gone.stderr
    done = login(tmp_path, registry.host, "-u", "robot", "--password-stdin", variables=variables)
    assert done.returncode == 0, f"the next step of the error does not run: {done.stderr}"
    assert json.loads(file.read_text()) == {"auths": {registry.host: auth()}}


def test_a_logout_removes_that_registry_only_and_can_be_repeated(tmp_path: Path) -> None:
    file = tmp_path / ".docker" / "config.json"
    file.parent.mkdir()
    others = {"registry.example/team": auth("a", "b"), "registry.example:5000": auth()}
    again = {"https://registry.example/v2/": auth("b", "c"), "registry.example": auth()}
    file.write_text(json.dumps({"auths": {**others, **again}, "proxies": {}}))
    done = logout(tmp_path, "registry.example")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"removed the login for registry.example from {file}\n"
    assert json.loads(file.read_text()) == {"auths": others, "proxies": {}}
    before = file.stat()
    assert logout(tmp_path, "registry.example").stdout == "there was no login for registry.example\n"
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("name", ["docker.io", "index.docker.io"])
def test_docker_hub_is_one_registry_whatever_its_name(tmp_path: Path, name: str) -> None:
    file = tmp_path / "auth.json"
    file.write_text(json.dumps({"auths": {"https://index.docker.io/v1/": auth()}}))
    assert logout(tmp_path, name, {"REGISTRY_AUTH_FILE": str(file)}).returncode == 0
    assert json.loads(file.read_text()) == {"auths": {}}


def test_a_login_of_another_program_is_named_and_stays(tmp_path: Path) -> None:
    file = tmp_path / ".config" / "containers" / "auth.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"auths": {"registry.example": auth()}}))
    done = logout(tmp_path, "registry.example", {"XDG_CONFIG_HOME": str(tmp_path / ".config")})
    assert done.stdout.splitlines()[-1].startswith(f"{file} has another login for registry.example")
    assert json.loads(file.read_text()) == {"auths": {"registry.example": auth()}}
    assert not (tmp_path / ".docker").exists()


@pytest.mark.parametrize(("stored", "removed"), [(True, "docker-credential-safe"), (False, "there was no login")])
def test_a_credential_helper_erases_its_login(tmp_path: Path, *, stored: bool, removed: str) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    answer = '{"Username":"robot","Secret":"s"}' if stored else "credentials not found in native keychain"
    helper = programs / "docker-credential-safe"
    helper.write_text(
        f'#!/bin/sh\necho "$@" $(cat) >> {tmp_path}/calls\n'
        f"[ $1 = erase ] || {{ echo '{answer}'; exit {0 if stored else 1}; }}\n"
    )
    helper.chmod(0o755)
    file = tmp_path / "auth.json"
    file.write_text(json.dumps({"credsStore": "safe", "auths": {"registry.example": {}}}))
    variables = {"REGISTRY_AUTH_FILE": str(file), "PATH": f"{programs}:{os.environ['PATH']}"}
    done = logout(tmp_path, "registry.example", variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert removed in done.stdout
    erased = ["erase registry.example"] if stored else []
    assert (tmp_path / "calls").read_text().splitlines() == ["get registry.example", *erased]
    assert json.loads(file.read_text())["auths"] == {}
