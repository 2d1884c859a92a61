"""Identity tokens from the environment of a program: GitHub Actions, GitLab CI, and files of Kubernetes.

The `id` library does the same for more providers, but it starts programs, reads responses of any size, and puts them
into its errors. A token is a secret until it expires: no message contains one. Sources: GitHub, "OpenID Connect
reference"; GitLab, "id_tokens"; cosign, pkg/providers (envvar, filesystem, github).
"""

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from gkm.api.errors import GKMError, Reason
from gkm.images.manifest import decode
from gkm.images.signatures.keys import UNREADABLE
from gkm.images.signatures.sigstore_services import SigstoreService
from gkm.images.signing.keyless import MAX_TOKEN_BYTES

AUDIENCE = "sigstore"
TOKEN_VARIABLE = "SIGSTORE_ID_TOKEN"  # noqa: S105 -- the name of the variable that cosign and GitLab's users have
TOKEN_FILE = Path("/var/run/sigstore/cosign/oidc-token")
"""Path at which cosign expects the projected service account token of a pod."""
_OK = 200


class _GitHubToken(Struct):
    value: str


def token(environment: Mapping[str, str] = os.environ, file: Path = TOKEN_FILE) -> str | None:
    """Return an identity token from the environment; None if no known provider is present.

    Raises:
        GKMError: UNAUTHORIZED: a provider is present and refuses a token; REGISTRY_UNAVAILABLE if it does not answer.
        OSError: the file cannot be read.
    """
    if given := environment.get(TOKEN_VARIABLE):
        return given
    if file.exists():
        return read(file)
    if environment.get("GITHUB_ACTIONS"):
        return _github(environment)
    if environment.get("GITLAB_CI"):
        raise GKMError(
            Reason.UNAUTHORIZED,
            f"this job of GitLab CI has no {TOKEN_VARIABLE}",
            f"add to the job: id_tokens: {{{TOKEN_VARIABLE}: {{aud: {AUDIENCE}}}}}",
        )
    return None


def read(file: Path) -> str:
    """Return the identity token in a file.

    Raises:
        OSError: the file cannot be read.
    """
    with file.open("rb") as opened:
        return opened.read(MAX_TOKEN_BYTES + 1).decode("ascii", "replace").strip()


def _github(environment: Mapping[str, str]) -> str:
    url, secret = (environment.get(f"ACTIONS_ID_TOKEN_REQUEST_{name}", "") for name in ("URL", "TOKEN"))
    if not url or not secret:
        raise GKMError(
            Reason.UNAUTHORIZED,
            "this job of GitHub Actions may not request an identity token",
            "add to the job: permissions: {id-token: write}",
        )
    parts = urlsplit(url)
    service = SigstoreService("the token server of GitHub Actions", f"{parts.scheme}://{parts.netloc}")
    query = urlencode([*parse_qsl(parts.query), ("audience", AUDIENCE)])
    answer = service.get(urlunsplit(parts._replace(query=query)), f"Bearer {secret}")
    if answer.status != _OK:
        raise service.failure(f"it answers {answer.status}", Reason.UNAUTHORIZED)
    try:
        return decode(answer.body, _GitHubToken, "its answer").value
    except UNREADABLE as error:
        raise service.failure("it sends no token", Reason.UNAUTHORIZED) from error
