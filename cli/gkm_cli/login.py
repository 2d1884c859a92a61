"""`gkm login`: check a login at a registry, and store it where docker and podman find it."""

import sys
from getpass import getpass
from typing import Annotated

import typer
from gkm.api.errors import GKMError, Reason, Remedy
from gkm.hoststate.escaping import escape
from gkm.images.reference import Reference
from gkm.images.registries.auth import Login
from gkm.images.registries.credentials import MAX_SECRET_CHARACTERS, AuthEntry, DockerConfig, Keyring, split_server

from gkm_cli import login_file
from gkm_cli.output import Output, OutputOption, UsageError, line, show
from gkm_cli.registries import RegistryAccess

_MAX_UTF8_BYTES = 4
"""Of one character."""
RegistryArgument = Annotated[str, typer.Argument(metavar="REGISTRY", help="The registry: host or host:port.")]
UserOption = Annotated[str, typer.Option("-u", "--username", help="The user, or the name of a token.")]
StdinOption = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input; without it, ask for it.")
]


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
    client = access.registry(Reference.parse(f"{host}/login")).with_credentials(Keyring([DockerConfig((entry,))]))
    try:
        client.check_login(host)
    except GKMError as error:
        if error.reason is not Reason.UNAUTHORIZED or error.hint != Remedy.LOG_IN:
            raise
        raise GKMError(error.reason, error.message, "check user and password; some registries want a token") from error
    where = login_file.store(host, given)
    result = {"registry": host, "username": username, "stored": where}
    show(result, output, lambda: line(f"logged in to {host}; the login is in {where}"))


def registry_host(registry: str) -> str:
    """Return the registry as references name it.

    Raises:
        UsageError: the word names a repository, or nothing.
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
        raise UsageError("there is no terminal to ask for the password", "pipe it: … | gkm login --password-stdin")
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
