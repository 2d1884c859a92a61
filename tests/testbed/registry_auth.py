"""Who may use the testbed's registry: nobody asked, HTTP Basic, or Bearer tokens from an endpoint of its own."""

import base64
import secrets
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field

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
            return kind.lower() == "basic" and self._known(value)
        scope = self._tokens.get(value) if kind.lower() == "bearer" else None
        return scope is not None and (not repository or f"repository:{repository}:" in scope)

    def issue(self, headers: Mapping[str, str], query: str) -> str | None:
        """Return a token for the scopes asked for, or None when the credentials are wrong."""
        kind, _, value = headers.get("authorization", "").partition(" ")
        if kind.lower() != "basic" or not self._known(value):
            return None
        scopes = urllib.parse.parse_qs(query).get("scope", [])
        allowed = [scope for scope in scopes if self._may(scope)]
        token = secrets.token_urlsafe(24)
        self._tokens[token] = " ".join(allowed)
        return token

    def revoke(self) -> None:
        """Forget every token, as an expiry would."""
        self._tokens.clear()

    def _may(self, scope: str) -> bool:
        return self.repositories is None or scope.startswith(f"repository:{self.repositories}")

    def _known(self, value: str) -> bool:
        try:
            return base64.b64decode(value).decode() == f"{self.user}:{self.password}"
        except ValueError:
            return False
