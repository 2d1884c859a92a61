"""Credentials of the user: the files of docker and podman, and the helper programs that these files name.

A helper, docker-credential-<name>, runs without a shell, bounded in time and bytes, its output hidden; it reads the
server on standard input and prints JSON (docker/docker-credential-helpers). Only the command line runs helper programs;
no process in a cluster does.
"""

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock

import msgspec
from gkm.api.errors import GKMError, Reason
from gkm.hoststate.bounded_command import BoundedCommand, RunFailed
from gkm.images.registries.auth import Credentials, Login
from gkm.images.registries.credentials import MAX_CONFIG_BYTES, DockerConfig, Keyring, parse, split_server
from gkm.images.registries.host_rules import DOCKER_HUB
from msgspec import Struct

DOCKER_HUB_SERVER = "https://index.docker.io/v1/"
"""The server name of Docker Hub for credential helpers."""
TIMEOUT_SECONDS = 60.0
"""A helper may ask the user for another password."""
MAX_OUTPUT_BYTES = 64 << 10
IDENTITY_TOKEN_USER = "<token>"  # noqa: S105 -- the user name that marks an identity token
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_NOT_FOUND = b"credentials not found in native keychain"


def credentials_from_environment(environment: Mapping[str, str] = os.environ) -> Credentials:
    """Return the credentials of this user. It reads the files now; helpers run when a registry asks for credentials.

    Raises:
        GKMError: UNAUTHORIZED: a file cannot be used, or REGISTRY_AUTH_FILE names no file.
    """
    named = environment.get("REGISTRY_AUTH_FILE")
    if named and not Path(named).is_file():
        why = f"REGISTRY_AUTH_FILE names {named}, which is no file"
        raise GKMError(Reason.UNAUTHORIZED, why, "log in, or unset the variable")
    return PersonalCredentials([config for _, config in configs(environment)])


def configs(environment: Mapping[str, str]) -> Iterator[tuple[Path, DockerConfig]]:
    """Yield the credential files that exist, and what they hold; raises GKMError as credentials_from_environment."""
    for path in _files(environment):
        if path.is_file() and (content := content_of(path)):
            yield path, parse(content, str(path))


def _files(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield the credential files: the one in REGISTRY_AUTH_FILE, or docker's and then podman's."""
    if named := environment.get("REGISTRY_AUTH_FILE"):
        yield Path(named)
        return
    home = Path(environment.get("HOME") or Path.home())
    yield Path(environment.get("DOCKER_CONFIG") or home / ".docker") / "config.json"
    if runtime := environment.get("XDG_RUNTIME_DIR"):
        yield Path(runtime) / "containers" / "auth.json"
    yield Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "containers" / "auth.json"
    yield home / ".dockercfg"


class PersonalCredentials:
    """The registry credentials in files of docker and podman, and of the helpers that they name. Thread-safe.

    The answer of a helper for a server is kept; a helper that failed runs again at the next request.
    """

    def __init__(self, configs: Sequence[DockerConfig]) -> None:
        self._configs = configs
        self._keyring = Keyring(configs)
        self._logins: dict[tuple[str, str], Login | None] = {}
        self._lock = Lock()

    def logins(self, registry: str, repository: str) -> Sequence[Login]:
        """Return the logins of helpers and files for a repository.

        Raises:
            GKMError: UNAUTHORIZED: a helper failed, and no other source has a login.
        """
        found: list[Login] = []
        failed: GKMError | None = None
        for name, server in dict.fromkeys(_helpers(self._configs, registry)):
            try:
                if login := self._query_helper(name, server):
                    found.append(login)
            except GKMError as error:
                failed = failed or error
        found += self._keyring.logins(registry, repository)
        if failed and not found:
            raise failed
        return found

    def _query_helper(self, name: str, server: str) -> Login | None:
        with self._lock:  # a helper may prompt the user: not in several threads at once
            if (name, server) not in self._logins:
                self._logins[name, server] = get_login(name, server)
            return self._logins[name, server]


def _helpers(configs: Sequence[DockerConfig], registry: str) -> Iterator[tuple[str, str]]:
    """Yield helpers and the server to ask them for: the helper of this registry, or else the one for all registries."""
    server = DOCKER_HUB_SERVER if registry == DOCKER_HUB else registry
    for config in configs:
        for name in helper_names(config, registry):
            yield name, server


def helper_names(config: DockerConfig, registry: str) -> list[str]:
    """Return the credential helpers that a file names for a registry: this registry's, or else the general one."""
    special = [name for helper_server, name in config.helpers.items() if is_same_server(helper_server, registry)]
    return special or list(filter(None, [config.store]))


def is_same_server(server: str, registry: str) -> bool:
    """Return whether a server in a credential file means the whole registry."""
    known = [split_server(registry)[:2]] + ([("index.docker.io", "")] if registry == DOCKER_HUB else [])
    return split_server(server)[:2] in known and split_server(server)[2] == ""


def content_of(path: Path) -> bytes:
    """Return the content of a credential file; b"" if there is none.

    Raises:
        GKMError: UNAUTHORIZED: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(MAX_CONFIG_BYTES + 1).strip()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise GKMError(
            Reason.UNAUTHORIZED, f"{path} cannot be read: {error.strerror}", "check its owner and mode"
        ) from error


class _HelperOutput(Struct, rename="pascal"):
    username: str = ""
    secret: str = ""


def get_login(name: str, server: str, seconds: float = TIMEOUT_SECONDS) -> Login | None:
    """Return the login of the helper `name` for a server; None if it has no login.

    Raises:
        GKMError: UNAUTHORIZED: the helper is not installed, failed, took too long or printed something else.
    """
    return login_in(name, *_run(name, "get", server.encode(), seconds))


def store_login(name: str, server: str, login: Login) -> None:
    """Store a login for a server with the helper `name`, which gets it on standard input.

    Raises:
        GKMError: UNAUTHORIZED: the helper is not installed, failed or took too long.
    """
    sent = {"ServerURL": server, "Username": login.user, "Secret": login.password}
    _check_code(name, _run(name, "store", msgspec.json.encode(sent))[0])


def erase_login(name: str, server: str) -> bool:
    """Remove the login for a server with the helper `name`; return False if there was no login.

    Raises:
        GKMError: UNAUTHORIZED: the helper is not installed, failed or took too long.
    """
    # Helpers differ in what they do without a login: some fail, some do not.
    if get_login(name, server) is None:
        return False
    _check_code(name, _run(name, "erase", server.encode())[0])
    return True


def _run(name: str, action: str, sent: bytes, seconds: float = TIMEOUT_SECONDS) -> tuple[int, bytes]:
    """Return the exit code and the output; the helper may ask for a password on the person's terminal."""
    command = BoundedCommand([_program(name), action], seconds, MAX_OUTPUT_BYTES, own_session=False)
    try:
        result = command.run(sent)
    except RunFailed as error:
        raise _failed(name, f"it {error}") from error
    return result.code, result.output


def _check_code(name: str, code: int) -> None:
    if code:
        raise _failed(name, f"it exited with {code}")


def login_in(name: str, code: int, output: bytes) -> Login | None:
    """Return the login in the output of the helper `name`, which exited with `code`; None if it has no login.

    Raises:
        GKMError: UNAUTHORIZED: the helper failed or printed something else.
    """
    # Helpers print this on standard output. Any other output may hold a secret.
    if code and output.strip().lower().startswith(_NOT_FOUND):
        return None
    _check_code(name, code)
    try:
        decoded = msgspec.json.decode(output, type=_HelperOutput)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise _failed(name, "its output has not the form of a helper's") from None
    if not decoded.secret:
        return None
    if decoded.username == IDENTITY_TOKEN_USER:
        return Login(identity_token=decoded.secret)
    return Login(decoded.username, decoded.secret)


def _program(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise _failed(name, "a helper cannot have that name")
    program = shutil.which(f"docker-credential-{name}")
    if program is None:
        raise _failed(name, "it is not installed")
    return program


def _failed(name: str, cause: str) -> GKMError:
    safe_name = name[:64] if _NAME.fullmatch(name[:64]) else repr(name[:64])
    return GKMError(
        Reason.UNAUTHORIZED,
        f"credential helper docker-credential-{safe_name} failed: {cause}",
        "log in again, or remove the helper from credsStore and credHelpers in docker's config.json",
    )
