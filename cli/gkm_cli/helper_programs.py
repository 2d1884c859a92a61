"""Asking a credential helper, docker-credential-<name>: no shell, bounded in time and bytes, nothing of it is shown.

Protocol: the server goes in on standard input, JSON comes out (docker/docker-credential-helpers).
"""

import re
import shutil

import msgspec
from gkm.api.errors import GKMError, Reason
from gkm.hoststate.bounded_command import BoundedCommand, RunFailed
from gkm.images.registries.auth import Login
from msgspec import Struct

TIMEOUT_SECONDS = 60.0
"""A helper may ask the person for a password of its own."""
MAX_ANSWER_BYTES = 64 << 10
IDENTITY_TOKEN_USER = "<token>"  # noqa: S105 -- the name that marks one
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_NOT_FOUND = b"credentials not found in native keychain"


class _HelperOutput(Struct, rename="pascal"):
    username: str = ""
    secret: str = ""


def get_login(name: str, server: str, seconds: float = TIMEOUT_SECONDS) -> Login | None:
    """Return what the helper `name` has for a server; None when it has nothing.

    Raises:
        GKMError: UNAUTHORIZED, it is not there, failed, took too long or answered something else.
    """
    if not _NAME.fullmatch(name):
        raise _failed(name, "that cannot be the name of a helper")
    program = shutil.which(f"docker-credential-{name}")
    if program is None:
        raise _failed(name, "it is not installed")
    # In the session of the person's terminal, where a helper may ask for a password.
    command = BoundedCommand([program, "get"], seconds, MAX_ANSWER_BYTES, own_session=False)
    try:
        result = command.run(server.encode())
    except RunFailed as error:
        raise _failed(name, f"it {error}") from error
    return login_in(name, result.code, result.output)


def login_in(name: str, code: int, output: bytes) -> Login | None:
    """Return the login in what the helper `name` printed before it ended with `code`; None when it has nothing.

    Raises:
        GKMError: UNAUTHORIZED, it failed or answered something else.
    """
    if code:
        # Helpers say so on standard output; whatever else they say may hold a secret.
        if output.strip().lower().startswith(_NOT_FOUND):
            return None
        raise _failed(name, f"it ended with {code}")
    return _login(name, output)


def _login(name: str, output: bytes) -> Login | None:
    """Return the login in an answer; None when it holds none."""
    try:
        answer = msgspec.json.decode(output, type=_HelperOutput)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise _failed(name, "its answer is not as helpers answer") from None
    if not answer.secret:
        return None
    if answer.username == IDENTITY_TOKEN_USER:
        return Login(identity_token=answer.secret)
    return Login(answer.username, answer.secret)


def _failed(name: str, why: str) -> GKMError:
    shown = name[:64] if _NAME.fullmatch(name[:64]) else repr(name[:64])
    return GKMError(
        Reason.UNAUTHORIZED,
        f"credential helper docker-credential-{shown} gave nothing: {why}",
        "log in again, or take the helper out of credsStore and credHelpers in docker's config.json",
    )
