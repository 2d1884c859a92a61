"""Answer the authentication challenges of a registry; send its credentials only to hosts that may see them.

Parses WWW-Authenticate (RFC 9110, section 11) within bounds. Follows distribution's token specification: GET with
Basic, or POST with a refresh token (OAuth2).
"""

import base64
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol
from urllib.parse import urlencode, urlsplit

from msgspec import Struct
from urllib3 import BaseHTTPResponse

from gkm.api.errors import GKMError, Reason, Remedy
from gkm.hoststate.lru import LRUCache
from gkm.images.manifest import decode
from gkm.images.registries.transport import (
    FORBIDDEN,
    OK,
    UNAUTHORIZED,
    RegistryRequest,
    Transport,
    read_body,
    requested_pause,
)

MAX_TOKEN_BYTES = 64 << 10
MAX_LOGINS = 8
"""Limit of logins that are tried for one registry, in their order; each costs two requests."""
BASIC_SECONDS, TOKEN_SECONDS = 300.0, 60.0
"""How long an accepted answer is sent in advance; TOKEN_SECONDS is the specification's default lifetime of tokens."""
_MAX_TOKEN_SECONDS = 3600.0
_EARLY_SECONDS = 5.0
_MAX_TOKENS = 256
_SCHEME = re.compile(r"(?:^|,)\s{0,8}(bearer|basic)(?=\s|$)", re.IGNORECASE)
_PARAMETER = re.compile(r'([A-Za-z_]{1,32})\s{0,8}=\s{0,8}(?:"([^"\x00-\x1f]{0,1024})"|([^\s",]{1,1024}))')
_MAX_HEADER_LENGTH = 8 << 10
_REFUSALS = frozenset({400, 401, 403})
"""The statuses of token servers for wrong credentials; 400 is OAuth2's (RFC 6749, section 5.2)."""


@dataclass(frozen=True, slots=True)
class Login:
    """A user with a password, or a refresh token in place of both. Its repr shows no secret."""

    user: str = ""
    password: str = ""
    identity_token: str = ""

    def __repr__(self) -> str:
        """Return a text without secrets."""
        return "Login(…)"

    @property
    def basic(self) -> str:
        """Return the Basic value of an Authorization header, "" without user and password."""
        if not (self.user or self.password):
            return ""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


class Credentials(Protocol):
    """Provides logins for registries. Thread-safe."""

    def logins(self, registry: str, repository: str) -> Sequence[Login]:
        """Return the logins that match a repository, the most specific first; an empty list for anonymous access.

        Raises:
            GKMError: the credentials cannot be read.
        """


@dataclass(frozen=True, slots=True)
class AuthSecret:
    """The value of an Authorization header for a registry, valid until `expires` (time.monotonic())."""

    value: str = field(repr=False)
    expires: float


class _Token(Struct):
    token: str | None = None
    access_token: str | None = None
    expires_in: float | None = None


@dataclass(frozen=True, slots=True)
class Challenge:
    """An authentication challenge of a registry: Basic, or for a Bearer token from `realm` for `service`."""

    bearer: bool
    realm: str = ""
    service: str | None = None

    @classmethod
    def parse(cls, header: str) -> "Challenge | None":
        """Return the Bearer challenge of a WWW-Authenticate header, else the Basic one; None for any other scheme."""
        header = header[:_MAX_HEADER_LENGTH]
        found = {match[1].lower(): match for match in reversed(list(_SCHEME.finditer(header)))}
        if match := found.get("bearer"):
            following = _SCHEME.search(header, match.end())
            text = header[match.end() : following.start() if following else None]
            parameters = {name.lower(): quoted or plain for name, quoted, plain in _PARAMETER.findall(text)}
            return cls(bearer=True, realm=parameters.get("realm", ""), service=parameters.get("service"))
        return cls(bearer=False) if "basic" in found else None


class Authorizer:
    """Sends requests to one registry with one set of credentials; caches accepted answers by scope. Thread-safe.

    Other credentials need another Authorizer: the token of one tenant must never serve another.
    """

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._secrets: LRUCache[str, AuthSecret] = LRUCache(_MAX_TOKENS)

    @contextmanager
    def send(
        self, transport: Transport, request: RegistryRequest, repository: str, actions: str, deadline: float
    ) -> Iterator[BaseHTTPResponse]:
        """Send a request through the registry's transport, with a token if the registry demands one.

        Raises:
            GKMError: as Transport.send; NOT_ALLOWED when the token server is not configured; UNAUTHORIZED when no login
                is accepted, or for credentials that cannot be read.
        """
        scope = f"repository:{repository}:{actions}" if repository else ""
        known = self._secrets.get(scope)
        secret = known.value if known and time.monotonic() < known.expires else ""
        with transport.send(replace(request, secret=secret), deadline) as response:
            if response.status != UNAUTHORIZED:
                yield response
                return
            challenge = Challenge.parse(response.headers.get("WWW-Authenticate", ""))
        for answer in self._candidate_secrets(transport, challenge, repository, scope, deadline) if challenge else ():
            with transport.send(replace(request, secret=answer.value), deadline) as response:
                if response.status not in (UNAUTHORIZED, FORBIDDEN):
                    self._secrets.put(scope, answer)
                    yield response
                    return
        raise GKMError(
            Reason.UNAUTHORIZED,
            f"registry {transport.registry} "
            + (f"denies access to {repository}" if repository else "refuses the login"),
            Remedy.LOG_IN,
            transport.registry,
        )

    def _candidate_secrets(
        self, transport: Transport, challenge: Challenge, repository: str, scope: str, deadline: float
    ) -> Iterator[AuthSecret]:
        """Yield one possible answer for each matching login; each is made on demand.

        As in Kubernetes, a client with logins does not try anonymous access.
        """
        logins: list[Login] = list(dict.fromkeys(self._credentials.logins(transport.registry, repository)))
        for login in logins[:MAX_LOGINS] or [Login()]:
            if not challenge.bearer:
                if login.basic:
                    yield AuthSecret(login.basic, time.monotonic() + BASIC_SECONDS)
            elif secret := _token(transport, challenge, login, scope, deadline):
                yield secret


def _token(transport: Transport, challenge: Challenge, login: Login, scope: str, deadline: float) -> AuthSecret | None:
    """Return a token for the scope; None if the token server refuses the login."""
    if not transport.may_send_credentials(challenge.realm):
        raise GKMError(
            Reason.NOT_ALLOWED,
            f"registry {transport.registry} demands a token from {_display_host(challenge.realm)!r}, "
            "a host that is not configured for it",
            Remedy.ADD_AUTH_HOST,
            transport.registry,
        )
    with transport.send(_token_request(challenge, login, scope), deadline) as response:
        if response.status in _REFUSALS:
            return None
        if response.status != OK:
            pause = requested_pause(response.headers.get("Retry-After", ""))
            raise transport.unavailable(f"its token server answers {response.status}", retry_after=pause)
        try:
            return _token_in(response, deadline)
        except GKMError as error:
            # An error about an answer would be one about the image: a refusal.
            raise transport.unavailable(f"its token server sends no token: {error.message}") from error


def _token_request(challenge: Challenge, login: Login, scope: str) -> RegistryRequest:
    """Return the request for a token of exactly this scope, independent of the challenge; "" asks for no repository."""
    query = ({"scope": scope} if scope else {}) | (
        {"service": challenge.service} if challenge.service is not None else {}
    )
    if login.identity_token:
        form = query | {"grant_type": "refresh_token", "client_id": "gkm", "refresh_token": login.identity_token}
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return RegistryRequest("POST", challenge.realm, kind, body=urlencode(form).encode())
    separator = "&" if urlsplit(challenge.realm).query else "?"
    return RegistryRequest("GET", f"{challenge.realm}{separator}{urlencode(query)}", secret=login.basic)


def _token_in(response: BaseHTTPResponse, deadline: float) -> AuthSecret | None:
    token = decode(read_body(response, MAX_TOKEN_BYTES, deadline), _Token, "the token of the registry")
    value = token.token or token.access_token or ""
    if not value or not value.isascii() or not value.isprintable():
        return None
    seconds = min(TOKEN_SECONDS if token.expires_in is None else token.expires_in, _MAX_TOKEN_SECONDS)
    return AuthSecret(f"Bearer {value}", time.monotonic() + seconds - _EARLY_SECONDS)


def _display_host(realm: str) -> str:
    """Return the host of a realm for a message, without a user name."""
    return realm.partition("//")[2].partition("/")[0].rpartition("@")[2][:100]
