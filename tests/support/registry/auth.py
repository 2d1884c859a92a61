"""Who may use the testbed's registry: nobody asked, HTTP Basic, or Bearer tokens from an endpoint of its own.

Tokens are handed out as distribution's specification says: for Basic by GET, for a refresh token by POST (OAuth2).
"""

import base64
import secrets
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field

from support.registry.wire import Request

TOKEN_PATH = "/token"
SERVICE = "gkm-testbed"


@dataclass
class Auth:
    """Credentials the registry accepts and how it asks for them."""

    user: str
    password: str
    bearer: bool = True
    realm: str | None = None
    """Where the challenge sends clients; default: this registry. Another host makes it a credential thief."""
    repositories: str | None = None
    """A prefix of repository names that a token may be used for; None: all."""
    tenants: Mapping[str, str] = field(default_factory=dict)
    """More users, with the same password: each may use the repositories below one prefix only."""
    identity_token: str | None = None
    """A refresh token that stands for `user`."""
    _tokens: dict[str, str] = field(default_factory=dict)

    def challenge(self, base_url: str, repository: str, action: str) -> str:
        """Return WWW-Authenticate for an unauthorised request."""
        if not self.bearer:
            return f'Basic realm="{self.realm or SERVICE}"'
        realm = self.realm or base_url + TOKEN_PATH
        scope = f',scope="repository:{repository}:{action}"' if repository else ""
        return f'Bearer realm="{realm}",service="{SERVICE}"{scope}'

    def admits(self, headers: Mapping[str, str], repository: str) -> bool:
        """Tell whether the request may touch `repository`."""
        kind, _, value = headers.get("authorization", "").partition(" ")
        if not self.bearer:
            user = self._known(value) if kind.lower() == "basic" else None
            return user is not None and self._may(user, f"repository:{repository}:")
        scope = self._tokens.get(value) if kind.lower() == "bearer" else None
        return scope is not None and (not repository or f"repository:{repository}:" in scope)

    def issue(self, request: Request) -> str | None:
        """Return a token for the scopes asked for, or None when the credentials are wrong."""
        asked = request.body.decode() if request.method == "POST" else request.query
        fields = urllib.parse.parse_qs(asked)
        user = self._by_identity_token(fields) if request.method == "POST" else self._by_basic(request.headers)
        if user is None:
            return None
        token = secrets.token_urlsafe(24)
        self._tokens[token] = " ".join(scope for scope in fields.get("scope", []) if self._may(user, scope))
        return token

    def revoke(self) -> None:
        """Forget every token, as an expiry would."""
        self._tokens.clear()

    def _may(self, user: str, scope: str) -> bool:
        prefix = self.tenants.get(user, self.repositories)
        return prefix is None or scope.startswith(f"repository:{prefix}")

    def _by_basic(self, headers: Mapping[str, str]) -> str | None:
        kind, _, value = headers.get("authorization", "").partition(" ")
        return self._known(value) if kind.lower() == "basic" else None

    def _by_identity_token(self, fields: Mapping[str, list[str]]) -> str | None:
        right = fields.get("grant_type") == ["refresh_token"] and fields.get("service") == [SERVICE]
        return self.user if right and fields.get("refresh_token") == [self.identity_token] else None

    def _known(self, value: str) -> str | None:
        """Return the user of Basic credentials, None when they are wrong."""
        try:
            user, _, password = base64.b64decode(value).decode().partition(":")
        except ValueError:
            return None
        return user if user in (self.user, *self.tenants) and password == self.password else None
