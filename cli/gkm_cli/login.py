"""`gkm login` and `gkm logout`: check a login at a registry, and store or remove it where docker and podman find it.

That is the credential helper that docker's config.json names, or that file; its other parts stay. The password is never
an argument, an environment variable or a part of a message.
"""

import base64
import os
import shlex
import sys
from collections.abc import Mapping
from getpass import getpass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from gkm.api.errors import GKMError, Reason, Remedy
from gkm.hoststate import files
from gkm.hoststate.escaping import escape
from gkm.images.reference import Reference
from gkm.images.registries.auth import Login
from gkm.images.registries.credentials import (
    MAX_SECRET_CHARACTERS,
    AuthEntry,
    DockerConfig,
    Keyring,
    parse,
    split_server,
)
from gkm.images.registries.host_rules import DOCKER_HUB

from gkm_cli import credential_helpers
from gkm_cli.credential_helpers import DOCKER_HUB_SERVER, configs, content_of, helper_names, is_same_server
from gkm_cli.output import Output, OutputOption, UsageError, line, show
from gkm_cli.registries import RegistryAccess

_MAX_UTF8_BYTES = 4
"""The bytes of one character."""
RegistryArgument = Annotated[str, typer.Argument(metavar="REGISTRY", help="The registry: host or host:port.")]
UserOption = Annotated[str, typer.Option("-u", "--username", help="The user, or the name of a token.")]
StdinOption = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input; without it, ask for it.")
]
_PRIVATE = 0o600


def login(
    registry: RegistryArgument,
    *,
    username: UserOption,
    password_stdin: StdinOption = False,
    access: RegistryAccess,
    output: OutputOption = Output.TABLE,
) -> None:
    """Log in to a registry, and store the login where docker stores it."""
    host = registry_host(registry)
    given = Login(username, _password(username, host, from_stdin=password_stdin))
    entry = AuthEntry(*split_server(host), given)
    client = access.registry(Reference.parse(f"{host}/login"), credentials=Keyring([DockerConfig((entry,))]))
    try:
        client.check_login(host)
    except GKMError as error:
        if error.reason is not Reason.UNAUTHORIZED or error.hint != Remedy.LOG_IN:
            raise
        raise GKMError(error.reason, error.message, "check user and password; some registries want a token") from error
    where = store(host, given)
    result = {"registry": host, "username": username, "stored": where}
    show(result, output, lambda: line(f"logged in to {host}; the login is in {where}"))


def registry_host(registry: str) -> str:
    """Return the registry as image references name it.

    Raises:
        UsageError: the word names a repository, or is empty.
    """
    host, port, path = split_server(registry.rstrip("/"))
    if path or not host:
        raise UsageError(f"{registry!r} is not a registry", "write host or host:port, without a repository")
    try:
        return Reference.parse(f"{host}{':' if port else ''}{port}/login").registry
    except GKMError as error:
        raise UsageError(f"{registry!r} is not a registry", "write host or host:port") from error


def _password(user: str, host: str, *, from_stdin: bool) -> str:
    if not from_stdin and not sys.stdin.isatty():
        login = shlex.join(("gkm", "login", host, "-u", user, "--password-stdin"))
        raise UsageError("there is no terminal to ask for the password", f"pipe it: … | {login}")
    try:
        password = _from_stdin() if from_stdin else getpass(escape(f"password of {user} at {host}: "))
        f"{user}{password}".encode()
    except UnicodeError:  # which quotes the password
        raise UsageError("the user or the password is not text in UTF-8", "correct it") from None
    if not password or len(password) > MAX_SECRET_CHARACTERS or not user or ":" in user:
        raise UsageError("the user or the password is empty, too long, or the user has a colon", "correct it")
    if "\n" in password or "\r" in password:
        raise UsageError("standard input has more than one line", "pipe the password alone")
    return password


def _from_stdin() -> str:
    """Return the text of standard input without the newline that ends it."""
    return sys.stdin.buffer.read(MAX_SECRET_CHARACTERS * _MAX_UTF8_BYTES + 2).decode().rstrip("\r\n")


def logout(registry: RegistryArgument) -> None:
    """Remove the login of a registry from where docker stores it."""
    host = registry_host(registry)
    if removed := remove(host):
        line(f"removed the login for {host} from {' and '.join(removed)}")
    else:
        line(f"there was no login for {host}")
    # Other programs, such as podman, store logins that gkm uses and does not change.
    for path in remaining(host):
        line(f"{path} has another login for {host}: remove it with the program that stored it")


def store(registry: str, login: Login, environment: Mapping[str, str] = os.environ) -> str:
    """Store a registry login where docker stores it; return the file or helper that has it.

    Raises:
        GKMError: UNAUTHORIZED: the file cannot be used, or its helper failed.
        OSError: the file cannot be written.
    """
    path, config, content = _stored(environment)
    server = DOCKER_HUB_SERVER if registry == DOCKER_HUB else registry
    helper = next(iter(helper_names(config, registry)), "")
    if helper:
        credential_helpers.store_login(helper, server, login)
        # As docker writes it: programs that list logins find the registry.
        entry: dict[str, str] = {}
    else:
        entry = {"auth": base64.b64encode(f"{login.user}:{login.password}".encode()).decode()}
    auths = content.get("auths") or {}
    if auths.get(server) != entry:
        _write(path, {**content, "auths": {**auths, server: entry}})
    return f"docker-credential-{helper}" if helper else str(path)


def remove(registry: str, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Remove the logins for a registry, not those for its repositories; return the files and helpers that had them.

    Raises:
        GKMError: UNAUTHORIZED: the file cannot be used, or its helper failed.
        OSError: the file cannot be written.
    """
    path, config, content = _stored(environment)
    server = DOCKER_HUB_SERVER if registry == DOCKER_HUB else registry
    found = [
        f"docker-credential-{helper}"
        for helper in helper_names(config, registry)
        if credential_helpers.erase_login(helper, server)
    ]
    auths = content.get("auths") or {}
    others = {name: entry for name, entry in auths.items() if not is_same_server(name, registry)}
    if len(others) < len(auths):
        _write(path, {**content, "auths": others})
        # An entry without content only names a registry whose login a helper has.
        found += [str(path)] if any(entry for name, entry in auths.items() if name not in others) else []
    return found


def remaining(registry: str, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the files of docker and podman that have a login for a registry; helpers are not run.

    Raises:
        GKMError: UNAUTHORIZED: a file cannot be used.
    """
    return [str(path) for path, config in configs(environment) if Keyring([config]).logins(registry, "")]


def _path(environment: Mapping[str, str]) -> Path:
    if named := environment.get("REGISTRY_AUTH_FILE"):
        return Path(named)
    home = Path(environment.get("HOME") or Path.home())
    return Path(environment.get("DOCKER_CONFIG") or home / ".docker") / "config.json"


def _stored(environment: Mapping[str, str]) -> tuple[Path, DockerConfig, dict[str, Any]]:
    """Return the file with the logins, as it is understood, and as it is written back; raises as `store`."""
    path = _path(environment)
    raw = content_of(path) or b"{}"
    config = parse(raw, str(path))
    return path, config, msgspec.json.decode(raw)


def _write(path: Path, content: dict[str, Any]) -> None:
    """Replace the file in one step, for its owner only; a link stays a link."""
    target = path.resolve()
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    files.replace(target, msgspec.json.format(msgspec.json.encode(content), indent=8), mode=_PRIVATE)
