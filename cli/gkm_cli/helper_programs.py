"""Asking a credential helper, docker-credential-<name>: no shell, bounded in time and bytes, nothing of it is shown.

Protocol: the server goes in on standard input, JSON comes out (docker/docker-credential-helpers).
"""

import os
import re
import selectors
import shutil
import subprocess
import time
from contextlib import suppress
from typing import IO

import msgspec
from gkm.api.errors import GKMError, Reason
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
    code, output = _run(program, server, name, seconds)
    return login_in(name, code, output)


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


def _run(program: str, server: str, name: str, seconds: float) -> tuple[int, bytes]:
    """Return exit code and standard output of the helper."""
    deadline = time.monotonic() + seconds
    with subprocess.Popen(  # noqa: S603 -- the person's own configuration names it, and its name was checked
        [program, "get"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            assert process.stdin is not None and process.stdout is not None  # noqa: PT018, S101 -- they are pipes
            with suppress(BrokenPipeError):
                process.stdin.write(server.encode())
                process.stdin.close()
            output = _output(process.stdout, deadline, name)
            return process.wait(max(0.0, deadline - time.monotonic())), output
        except subprocess.TimeoutExpired:
            raise _failed(name, "it does not end") from None
        finally:
            process.kill()


def _output(pipe: IO[bytes], deadline: float, name: str) -> bytes:
    """Return everything up to the end of a pipe, which something that the helper started may keep open for ever."""
    parts = b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while selector.select(max(0.0, deadline - time.monotonic())):
            part = os.read(pipe.fileno(), MAX_ANSWER_BYTES)
            if not part:
                return parts
            parts += part
            if len(parts) > MAX_ANSWER_BYTES:
                raise _failed(name, f"it answers with more than {MAX_ANSWER_BYTES} bytes")
    raise _failed(name, "it did not answer in time")


def _failed(name: str, why: str) -> GKMError:
    shown = name[:64] if _NAME.fullmatch(name[:64]) else repr(name[:64])
    return GKMError(
        Reason.UNAUTHORIZED,
        f"credential helper docker-credential-{shown} gave nothing: {why}",
        "log in again, or take the helper out of credsStore and credHelpers in docker's config.json",
    )
