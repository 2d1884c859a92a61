"""Run a credential helper, docker-credential-<name>: without a shell, bounded in time and bytes, its output hidden.

Protocol: the helper reads the server on standard input and prints JSON (docker/docker-credential-helpers).
"""

import re
import shutil

import msgspec
from gkm.api.errors import GKMError, Reason
from gkm.hoststate.bounded_command import BoundedCommand, RunFailed
from gkm.images.registries.auth import Login
from msgspec import Struct

TIMEOUT_SECONDS = 60.0
"""A helper may ask the user for a password of its own."""
MAX_OUTPUT_BYTES = 64 << 10
IDENTITY_TOKEN_USER = "<token>"  # noqa: S105 -- the user name that marks an identity token
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_NOT_FOUND = b"credentials not found in native keychain"


class _HelperOutput(Struct, rename="pascal"):
    username: str = ""
    secret: str = ""


def get_login(name: str, server: str, seconds: float = TIMEOUT_SECONDS) -> Login | None:
    """Return the login of the helper `name` for a server; None if it has no login.

    Raises:
        GKMError: UNAUTHORIZED: the helper is not installed, failed, took too long or printed something else.
    """
    # In the session of the person's terminal, where a helper may ask for a password.
    command = BoundedCommand([_program(name), "get"], seconds, MAX_OUTPUT_BYTES, own_session=False)
    try:
        result = command.run(server.encode())
    except RunFailed as error:
        raise _failed(name, f"it {error}") from error
    return login_in(name, result.code, result.output)


def store_login(name: str, server: str, login: Login, seconds: float = TIMEOUT_SECONDS) -> None:
    """Store a login for a server with the helper `name`, which gets it on standard input.

    Raises:
        GKMError: UNAUTHORIZED: the helper is not installed, failed or took too long.
    """
    sent = {"ServerURL": server, "Username": login.user, "Secret": login.password}
    command = BoundedCommand([_program(name), "store"], seconds, MAX_OUTPUT_BYTES, own_session=False)
    try:
        code = command.run(msgspec.json.encode(sent)).code
    except RunFailed as error:
        raise _failed(name, f"it {error}") from error
    if code:
        raise _failed(name, f"it exited with {code}")


def erase_login(name: str, server: str, seconds: float = TIMEOUT_SECONDS) -> bool:
    """Remove the login for a server with the helper `name`; return False if it had none.

    Raises:
        GKMError: UNAUTHORIZED: the helper is not installed, failed or took too long.
    """
    # Helpers differ in what they do without a login: some fail, some do not.
    if get_login(name, server, seconds) is None:
        return False
    command = BoundedCommand([_program(name), "erase"], seconds, MAX_OUTPUT_BYTES, own_session=False)
    try:
        code = command.run(server.encode()).code
    except RunFailed as error:
        raise _failed(name, f"it {error}") from error
    if code:
        raise _failed(name, f"it exited with {code}")
    return True


def login_in(name: str, code: int, output: bytes) -> Login | None:
    """Return the login in the output of the helper `name`, which exited with `code`; None if it has no login.

    Raises:
        GKMError: UNAUTHORIZED: the helper failed or printed something else.
    """
    if code:
        # Helpers print this on standard output. Any other output may hold a secret.
        if output.strip().lower().startswith(_NOT_FOUND):
            return None
        raise _failed(name, f"it exited with {code}")
    try:
        decoded = msgspec.json.decode(output, type=_HelperOutput)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise _failed(name, "its output is not that of a helper") from None
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
