"""Tokens: the challenges of a registry, answered only to hosts that may see its credentials.

As distribution's token specification has it: GET with Basic, or POST with a refresh token (OAuth2).
"""

import base64
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Protocol
from urllib.parse import urlencode, urlsplit

from msgspec import Struct
from urllib3 import BaseHTTPResponse

from gkm.api.errors import GKMError, Reason
from gkm.api.remedies import Remedy
from gkm.images.manifest import decode
from gkm.images.registries.bodies import read_body
from gkm.images.registries.challenges import Challenge
from gkm.images.registries.transport import HttpRequest, Transport

MAX_TOKEN_BYTES = 64 << 10
MAX_LOGINS = 8
"""So many of the credentials that match a repository are tried, in their order; each costs two requests."""
BASIC_SECONDS, TOKEN_SECONDS = 300.0, 60.0
"""How long an answer that worked is sent unasked; the second is the specification's default for tokens."""
_MAX_TOKEN_SECONDS = 3600.0
_EARLY_SECONDS = 5.0
_MAX_TOKENS = 256
_OK = 200
_REFUSALS = frozenset({400, 401, 403})
"""What token servers answer to wrong credentials; 400 is OAuth2's (RFC 6749, section 5.2)."""


@dataclass(frozen=True, slots=True)
class Login:
    """A user and a password, or a refresh token that stands for both; never shown."""

    user: str = ""
    password: str = ""
    identity_token: str = ""

    def __repr__(self) -> str:
        """Return nothing that could end in a log."""
        return "Login(…)"

    @property
    def basic(self) -> str:
        """Return the value of an Authorization header, nothing where there is neither."""
        if not (self.user or self.password):
            return ""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


class Credentials(Protocol):
    """Who we are at a registry. Thread-safe."""

    def logins(self, registry: str, repository: str) -> Sequence[Login]:
        """Return what may open the repository, the most fitting first; nothing for nobody.

        Raises:
            GKMError: they cannot be had.
        """


class AnonymousCredentials:
    """Nobody, anywhere."""

    def logins(self, registry: str, repository: str) -> Sequence[Login]:  # noqa: ARG002 -- the Protocol's names
        """Return nothing."""
        return ()


@dataclass(frozen=True, slots=True)
class AuthSecret:
    """The value of an Authorization header, good until `expires` (time.monotonic())."""

    value: str = field(repr=False)
    expires: float


class _Token(Struct):
    token: str | None = None
    access_token: str | None = None
    expires_in: float | None = None


class Authorizer:
    """Answers challenges of one registry for one set of credentials, and remembers the answers by scope. Thread-safe.

    Whoever has other credentials needs an Authorizer of their own: what one tenant got must never serve another.
    """

    def __init__(self, transport: Transport, credentials: Credentials) -> None:
        self._transport = transport
        self._credentials = credentials
        self._secrets: dict[str, AuthSecret] = {}
        self._lock = Lock()

    def cached(self, repository: str, actions: str) -> str:
        """Return an Authorization value that is still good, or nothing."""
        with self._lock:
            secret = self._secrets.get(_scope(repository, actions))
        return secret.value if secret and time.monotonic() < secret.expires else ""

    def cache(self, repository: str, actions: str, secret: AuthSecret) -> None:
        """Keep an answer that the registry took."""
        with self._lock:
            if len(self._secrets) >= _MAX_TOKENS:
                self._secrets.clear()
            self._secrets[_scope(repository, actions)] = secret

    def challenge_responses(self, header: str, repository: str, actions: str, deadline: float) -> Iterator[AuthSecret]:
        """Yield what may answer a WWW-Authenticate header, one for each fitting login, made when its turn comes.

        As in Kubernetes, who has logins does not try to be nobody.

        Raises:
            GKMError: NOT_ALLOWED when credentials are wanted elsewhere, REGISTRY_UNAVAILABLE, or UNAUTHORIZED for
                credentials that cannot be had.
        """
        challenge = Challenge.parse(header)
        if challenge is None:
            return
        logins: list[Login] = list(dict.fromkeys(self._credentials.logins(self._transport.registry, repository)))
        for login in logins[:MAX_LOGINS] or [Login()]:
            if not challenge.bearer:
                if login.basic:
                    yield AuthSecret(login.basic, time.monotonic() + BASIC_SECONDS)
            elif secret := self._token(challenge, login, _scope(repository, actions), deadline):
                yield secret

    def unauthorized(self, repository: str) -> GKMError:
        """Return the error for a repository that nothing of ours opens."""
        return GKMError(
            Reason.UNAUTHORIZED,
            f"registry {self._transport.registry} does not let us use {repository}",
            Remedy.LOG_IN,
            self._transport.registry,
        )

    def _token(self, challenge: Challenge, login: Login, scope: str, deadline: float) -> AuthSecret | None:
        """Return a token for the scope; None when the login does not get one."""
        if not self._transport.may_send_credentials(challenge.realm):
            raise GKMError(
                Reason.NOT_ALLOWED,
                f"registry {self._transport.registry} wants a token from {_display_host(challenge.realm)!r}, "
                "a host that is not configured for it",
                Remedy.ADD_AUTH_HOST,
                self._transport.registry,
            )
        with self._transport.send(_token_request(challenge, login, scope), deadline) as response:
            if response.status in _REFUSALS:
                return None
            if response.status != _OK:
                raise self._transport.unavailable(f"its token server answers {response.status}")
            return _token_in(response, deadline)


def _token_request(challenge: Challenge, login: Login, scope: str) -> HttpRequest:
    """Return the request for a token of exactly this scope, whatever the challenge asked for."""
    query = {"scope": scope} | ({"service": challenge.service} if challenge.service is not None else {})
    if login.identity_token:
        form = query | {"grant_type": "refresh_token", "client_id": "gkm", "refresh_token": login.identity_token}
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return HttpRequest("POST", challenge.realm, kind, body=urlencode(form).encode())
    separator = "&" if urlsplit(challenge.realm).query else "?"
    return HttpRequest("GET", f"{challenge.realm}{separator}{urlencode(query)}", secret=login.basic)


def _token_in(response: BaseHTTPResponse, deadline: float) -> AuthSecret | None:
    token = decode(read_body(response, MAX_TOKEN_BYTES, deadline), _Token, "the token of the registry")
    value = token.token or token.access_token or ""
    if not value or not value.isascii() or not value.isprintable():
        return None
    seconds = min(TOKEN_SECONDS if token.expires_in is None else token.expires_in, _MAX_TOKEN_SECONDS)
    return AuthSecret(f"Bearer {value}", time.monotonic() + seconds - _EARLY_SECONDS)


def _display_host(realm: str) -> str:
    """Return the host of a realm for a message, without a user that it may name."""
    return realm.partition("//")[2].partition("/")[0].rpartition("@")[2][:100]


def _scope(repository: str, actions: str) -> str:
    return f"repository:{repository}:{actions}"
