"""The user's credentials: files of docker and podman, and helper programs that fail in every way."""

import base64
import json
import os
import threading
from pathlib import Path

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.images.registries.auth import Login
from gkm_cli.credential_helpers import MAX_OUTPUT_BYTES, credentials_from_environment, get_login

SECRET = "s3cret-passw0rd"
HUB = "https://index.docker.io/v1/"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def helpers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory where helper programs are found."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    return directory


def helper(directory: Path, name: str, script: str) -> Path:
    """Install docker-credential-<name>; it notes down what it is server."""
    path = directory / f"docker-credential-{name}"
    server = directory / f"{name}.asked"
    path.write_text(f'#!/bin/sh\nread -r server\necho "$1 $server" >> {server}\n{script}\n')
    path.chmod(0o755)
    return server


def answering(user: str = "robot", secret: str = SECRET) -> str:
    return f"""echo '{json.dumps({"ServerURL": "x", "Username": user, "Secret": secret})}'"""


def write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def auths(user: str) -> dict[str, dict[str, object]]:
    return {"auths": {"registry.example": {"auth": base64.b64encode(f"{user}:{SECRET}".encode()).decode()}}}


def users(environment: dict[str, str], registry: str = "registry.example") -> list[str]:
    return [login.user for login in credentials_from_environment(environment).logins(registry, "team/x")]


def test_without_any_file_the_user_is_anonymous(home: Path) -> None:
    assert users({"HOME": str(home)}) == []


def test_the_files_of_docker_and_podman_are_read(home: Path) -> None:
    write(home / ".docker/config.json", auths("docker"))
    write(home / "run/containers/auth.json", auths("podman"))
    write(home / ".config/containers/auth.json", auths("skopeo"))
    write(home / ".dockercfg", auths("old")["auths"])
    environment = {"HOME": str(home), "XDG_RUNTIME_DIR": str(home / "run")}
    assert users(environment) == ["docker", "podman", "skopeo", "old"]


def test_environment_variables_name_other_files(home: Path) -> None:
    write(home / ".docker/config.json", auths("home"))
    write(home / "other/config.json", auths("other"))
    assert users({"HOME": str(home), "DOCKER_CONFIG": str(home / "other")}) == ["other"]
    write(home / "xdg/containers/auth.json", auths("xdg"))
    assert users({"HOME": str(home), "XDG_CONFIG_HOME": str(home / "xdg")}) == ["home", "xdg"]
    named = write(home / "auth.json", auths("named"))
    assert users({"HOME": str(home), "REGISTRY_AUTH_FILE": str(named)}) == ["named"]


def test_a_file_that_was_named_and_is_not_there_is_an_error(home: Path) -> None:
    with pytest.raises(GKMError, match="REGISTRY_AUTH_FILE") as caught:
        credentials_from_environment({"HOME": str(home), "REGISTRY_AUTH_FILE": str(home / "nowhere.json")})
    assert caught.value.reason is Reason.UNAUTHORIZED


@pytest.mark.parametrize("content", ["", " \n", "{}", '{"currentContext":"x"}'])
def test_a_file_without_logins_is_no_error(home: Path, content: str) -> None:
    path = write(home / ".docker/config.json", {})
    path.write_text(content)
    assert users({"HOME": str(home)}) == []


def test_an_invalid_file_is_named_and_its_content_is_not_printed(home: Path) -> None:
    path = write(home / ".docker/config.json", {"auths": {"registry.example": SECRET}})
    with pytest.raises(GKMError, match=str(path)) as caught:
        credentials_from_environment({"HOME": str(home)})
    assert SECRET not in str(caught.value)


def test_a_pipe_is_not_waited_for(home: Path) -> None:
    (home / ".docker").mkdir()
    os.mkfifo(home / ".docker/config.json")
    assert users({"HOME": str(home)}) == []


@pytest.mark.parametrize(
    ("config", "registry", "server"),
    [
        ({"credsStore": "all"}, "registry.example", "get registry.example"),
        ({"credsStore": "all"}, "docker.io", f"get {HUB}"),
        ({"credHelpers": {"registry.example": "all"}}, "registry.example", "get registry.example"),
        ({"credHelpers": {"https://registry.example": "all"}}, "registry.example", "get registry.example"),
        ({"credHelpers": {"docker.io": "all"}}, "docker.io", f"get {HUB}"),
        ({"credHelpers": {HUB: "all"}}, "docker.io", f"get {HUB}"),
        ({"credHelpers": {"registry.example": "all"}, "credsStore": "x"}, "registry.example", "get registry.example"),
    ],
)
def test_a_helper_runs_for_its_registry(
    home: Path, helpers: Path, config: dict[str, object], registry: str, server: str
) -> None:
    noted = helper(helpers, "all", answering())
    write(home / ".docker/config.json", config | {"auths": {HUB: {}}})
    credentials = credentials_from_environment({"HOME": str(home)})
    assert not noted.exists()  # nobody has server for anything yet
    assert credentials.logins(registry, "team/x") == [Login("robot", SECRET)]
    assert noted.read_text().splitlines() == [server]


def test_a_helper_of_another_registry_does_not_run(home: Path, helpers: Path) -> None:
    noted = helper(helpers, "cloud", answering())
    write(home / ".docker/config.json", {"credHelpers": {"cloud.example": "cloud"}})
    assert users({"HOME": str(home)}) == []
    assert not noted.exists()


def test_a_helper_runs_once_for_all_threads(home: Path, helpers: Path) -> None:
    noted = helper(helpers, "slow", f"sleep 0.3; {answering()}")
    write(home / ".docker/config.json", {"credsStore": "slow"})
    credentials = credentials_from_environment({"HOME": str(home)})
    threads = [threading.Thread(target=credentials.logins, args=("registry.example", "x")) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(noted.read_text().splitlines()) == 1


def test_an_identity_token_of_a_helper_becomes_a_login(helpers: Path) -> None:
    helper(helpers, "cloud", answering("<token>", "refresh"))
    assert get_login("cloud", "registry.example") == Login(identity_token="refresh")


@pytest.mark.parametrize(
    "script",
    [
        "echo credentials not found in native keychain; exit 1",
        answering("robot", ""),
        answering("<token>", ""),
        "echo '{}'",
    ],
)
def test_a_helper_may_know_nothing(helpers: Path, script: str) -> None:
    helper(helpers, "empty", script)
    assert get_login("empty", "registry.example") is None


@pytest.mark.parametrize(
    ("script", "cause"),
    [
        (f"echo {SECRET}; echo {SECRET} >&2; exit 1", "exited with 1"),
        (f"echo {SECRET}", "output has not the form of a helper's"),
        (f"""echo '{{"Username":["{SECRET}"]}}'""", "output has not the form of a helper's"),
        ("printf '\\377\\376'", "output has not the form of a helper's"),
        ("printf '%060000d' 0 | tr 0 '['", "output has not the form of a helper's"),
        (
            f"""printf '{{"x":'; printf '%060000d' 0 | tr 0 '['; echo {SECRET}""",
            "output has not the form of a helper's",
        ),
        ("kill -9 $$", "exited with -9"),
        (f"head -c {MAX_OUTPUT_BYTES * 4} /dev/zero; exec sleep 30", "more than"),
        ("exec sleep 30", "no answer within"),
        ("sleep 3 & exit 0", "no answer within"),  # a child keeps the output open
        ("exec 1>&-; exec sleep 30", "does not end"),
    ],
)
def test_a_helper_that_fails_is_an_error_that_shows_nothing(
    helpers: Path, script: str, cause: str, capfd: pytest.CaptureFixture[str]
) -> None:
    helper(helpers, "bad", script)
    with pytest.raises(GKMError, match=f"docker-credential-bad failed: .*{cause}") as caught:
        get_login("bad", "registry.example", seconds=1.0)
    assert caught.value.reason is Reason.UNAUTHORIZED
    assert SECRET not in str(caught.value)
    assert SECRET not in "".join(capfd.readouterr())


@pytest.mark.parametrize("name", ["", "../evil", "a/b", "x; rm -rf /", "-x", "x\n", "ä", "x" * 65, "$(id)"])
def test_a_name_that_no_helper_has_is_not_run(name: str) -> None:
    with pytest.raises(GKMError, match="helper cannot have that name"):
        get_login(name, "registry.example")


def test_a_helper_that_is_not_installed_is_named() -> None:
    with pytest.raises(GKMError, match=r"docker-credential-nowhere .*not installed"):
        get_login("nowhere", "registry.example")


def test_a_helper_receives_only_the_server(helpers: Path) -> None:
    helper(helpers, "rest", f"read -r more && echo more; {answering()}")
    assert get_login("rest", "registry.example") == Login("robot", SECRET)


def test_a_helper_that_fails_is_no_error_where_a_file_has_a_login(home: Path, helpers: Path) -> None:
    helper(helpers, "bad", "exit 1")
    write(home / ".docker/config.json", {"credsStore": "bad"})
    with pytest.raises(GKMError, match="docker-credential-bad"):
        users({"HOME": str(home)})
    write(home / ".config/containers/auth.json", auths("podman"))
    assert users({"HOME": str(home)}) == ["podman"]


def test_no_helper_is_left_running(helpers: Path) -> None:
    helper(helpers, "hangs", f"echo $$ > {helpers}/pid; exec sleep 60")
    with pytest.raises(GKMError, match=r"docker-credential-hangs failed: it gives no answer within 0\.5 s"):
        get_login("hangs", "registry.example", seconds=0.5)
    with pytest.raises(ProcessLookupError):
        os.kill(int((helpers / "pid").read_text()), 0)
