"""Credentials: files and Secrets as docker writes them, and what helper programs answer. No message holds a secret."""

import base64
import json

from gkm.api.errors import GKMError
from gkm.images.registries.auth import Login
from gkm.images.registries.credentials import MAX_ENTRIES, MAX_SECRET_CHARACTERS, Keyring, parse
from gkm_cli import credential_helpers

SECRET = "s3cret-Passw0rd"
_REGISTRIES = (("registry.example", "team/x"), ("docker.io", "library/x"), ("[fd00::1]:5000", "x"))


def configuration(data: bytes) -> None:
    """Every login can be sent, and is for a place in one spelling."""
    try:
        found = parse(data, "the file")
    except GKMError as error:
        _check_silent(error)
        raise
    assert len(found.entries) + len(found.helpers) <= MAX_ENTRIES
    for entry in found.entries:
        assert entry.host == entry.host.lower()
        assert entry.port != "443"
        _check_login(entry.login)
    keyring = Keyring([found])
    for registry, repository in _REGISTRIES:
        for login in keyring.logins(registry, repository):
            _check_login(login)


def helper(data: bytes) -> None:
    """The first byte is the exit code."""
    try:
        login = credential_helpers.login_in("pass", data[0] if data else 0, data[1:])
    except GKMError as error:
        _check_silent(error)
        raise
    if login is not None:
        assert login.identity_token or login.password
        _check_login(login)


def _check_login(login: Login) -> None:
    assert max(map(len, (login.user, login.password, login.identity_token))) <= MAX_SECRET_CHARACTERS
    assert login.basic.isascii()
    assert login.basic.isprintable()
    assert not login.basic or base64.b64decode(login.basic.removeprefix("Basic ")) == (
        f"{login.user}:{login.password}".encode()
    )
    login.identity_token.encode()  # it goes into a form
    assert login.password not in repr(login) or len(login.password) < len("Login(…)")


def _check_silent(error: GKMError) -> None:
    """See that the message does not repeat the secret of the seeds, plain or in base64."""
    hidden = base64.b64encode(f"robot:{SECRET}".encode()).decode()
    assert SECRET not in json.dumps(str(error))
    assert hidden not in str(error)
