"""Tokens: the Bearer and Basic challenges of a registry, answered only to hosts that may see its credentials."""

import base64
import re
import time
from dataclasses import dataclass
from threading import Lock
from typing import Protocol
from urllib.parse import urlencode, urlsplit

from msgspec import Struct

from gkm.api.errors import GKMError, Reason
from gkm.images.bodies import read_body
from gkm.images.manifest import decode
from gkm.images.transport import Request, Transport

MAX_TOKEN_BYTES = 64 << 10
_PARAMETER = re.compile(r'([a-z_]{1,32})="([^"\x00-\x1f]{0,1024})"')
_MAX_TOKENS = 256
_OK = 200


@dataclass(frozen=True, slots=True)
class Login:
    """A user and a password; never shown."""

    user: str
    password: str

    def __repr__(self) -> str:
        """Return nothing that could end in a log."""
        return "Login(…)"

    @property
    def basic(self) -> str:
        """Return the value of an Authorization header."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


class Credentials(Protocol):
    """Who we are at a registry."""

    def login(self, registry: str, repository: str) -> Login | None:
        """Return what opens the repository, None for nobody."""


class Anonymous:
    """Nobody, anywhere."""

    def login(self, registry: str, repository: str) -> Login | None:  # noqa: ARG002 -- the Protocol's names
        """Return nothing."""
        return None


class _Token(Struct):
    token: str = ""
    access_token: str = ""
    expires_in: int = 60


class Authorizer:
    """Answers challenges for one registry and remembers tokens by scope."""

    def __init__(self, transport: Transport, credentials: Credentials) -> None:
        self._transport = transport
        self._credentials = credentials
        self._tokens: dict[str, tuple[str, float]] = {}
        self._lock = Lock()

    def known(self, repository: str, actions: str) -> str:
        """Return an Authorization value that is still good, or nothing."""
        with self._lock:
            value, expires = self._tokens.get(_scope(repository, actions), ("", 0.0))
        return value if time.monotonic() < expires else ""

    def answer(self, challenge: str, repository: str, actions: str, deadline: float) -> str:
        """Return the Authorization value that a 401 asks for in its WWW-Authenticate header.

        Raises:
            GKMError: UNAUTHORIZED when nothing of ours opens it, NOT_ALLOWED when it asks for credentials elsewhere.
        """
        kind, _, rest = challenge.partition(" ")
        login = self._credentials.login(self._transport.registry, repository)
        if kind.lower() == "basic" and login:
            value, seconds = login.basic, 300.0
        elif kind.lower() == "bearer":
            value, seconds = self._token(dict(_PARAMETER.findall(rest)), login, _scope(repository, actions), deadline)
        else:
            raise self._unauthorized(repository)
        with self._lock:
            if len(self._tokens) >= _MAX_TOKENS:
                self._tokens.clear()
            self._tokens[_scope(repository, actions)] = (value, time.monotonic() + seconds)
        return value

    def _token(self, challenge: dict[str, str], login: Login | None, scope: str, deadline: float) -> tuple[str, float]:
        realm = challenge.get("realm", "")
        if not self._transport.may_see_secret(realm):
            raise GKMError(
                Reason.NOT_ALLOWED,
                f"registry {self._transport.registry} wants a token from {urlsplit(realm).netloc[:100]!r}, "
                "a host that is not configured for it",
                "if it is right, add it to registries.hosts.<host>.authHosts",
            )
        query = {"scope": scope} | ({"service": challenge["service"]} if "service" in challenge else {})
        separator = "&" if urlsplit(realm).query else "?"
        request = Request("GET", f"{realm}{separator}{urlencode(query)}", secret=login.basic if login else "")
        with self._transport.send(request, deadline) as response:
            if response.status != _OK:
                raise self._unauthorized(scope.split(":")[1])
            token = decode(read_body(response, MAX_TOKEN_BYTES, deadline), _Token, "the token of the registry")
        value = token.token or token.access_token
        if not value or not value.isascii() or not value.isprintable():
            raise self._unauthorized(scope.split(":")[1])
        return f"Bearer {value}", max(0.0, min(token.expires_in, 3600) - 5.0)

    def _unauthorized(self, repository: str) -> GKMError:
        return GKMError(
            Reason.UNAUTHORIZED,
            f"registry {self._transport.registry} does not let us read {repository}",
            "check that the repository exists and that its credentials are configured",
        )


def _scope(repository: str, actions: str) -> str:
    return f"repository:{repository}:{actions}"
