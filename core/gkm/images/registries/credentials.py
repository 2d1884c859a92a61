"""Parse Kubernetes' image pull secrets, .dockerconfigjson and .dockercfg, typed and bounded; match them by repository.

Both follow the kubelet (pkg/credentialprovider/keyring.go). Host and repository of an entry must match: `*` stands for
a part of one label, so `*.example.com` does not match `example.com` or `a.b.example.com`. The port must be equal, and
the path must be a prefix of the repository. Entries are tried in reverse order of their text, so that a more specific
entry comes first.

A cache has the pull secrets that its object names, and those that the configuration names per host. GKM reads a Secret
by its name when a pull needs it and does not store it: its service accounts cannot list Secrets, and each namespace
grants access to its own (deploy/samples/pull-secret.yaml). A Secret serves only the cache that names it.
"""

import base64
import binascii
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
from msgspec import Raw, Struct

from gkm.api import json_limits
from gkm.api.config import Registries
from gkm.api.errors import GKMError, Reason
from gkm.images.reference import Reference
from gkm.images.registries.auth import Credentials, Login
from gkm.images.registries.host_rules import DOCKER_HUB

KEYS = (".dockerconfigjson", ".dockercfg")
"""The data keys of Secrets of type kubernetes.io/dockerconfigjson and kubernetes.io/dockercfg."""
MAX_CONFIG_BYTES = 1 << 20
"""The largest Secret that Kubernetes stores."""
MAX_ENTRIES = 1024
MAX_SECRET_CHARACTERS = 64 << 10
_DOCKER_HUB_KEY = "index.docker.io"
"""The key that docker writes for Docker Hub: https://index.docker.io/v1/."""
_MAX_SERVER = 1024
_SCHEMES = ("https://", "http://")
_API_PREFIXES = ("/v1/", "/v2/")


class Secrets(Protocol):
    """Reads single Secrets by namespace and name."""

    def data(self, namespace: str, name: str) -> dict[str, str]:
        """Return the data of a Secret, in base64.

        Raises:
            GKMError: UNAUTHORIZED for a missing or forbidden Secret, NODE_ERROR when the API server does not answer.
        """


@dataclass(frozen=True, slots=True)
class AuthEntry:
    """A login and the registry that it opens: host[:port][/path]; the host may contain `*`."""

    host: str
    port: str
    path: str
    login: Login

    @property
    def key(self) -> str:
        """Return host, port and path as one text, the sort key of entries."""
        return f"{self.host}{':' if self.port else ''}{self.port}{self.path}"


@dataclass(frozen=True, slots=True)
class DockerConfig:
    """The content of a docker config file or pull Secret: logins, and names of credential helpers."""

    entries: tuple[AuthEntry, ...] = ()
    store: str = ""
    helpers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PullSecrets:
    """Finds the credentials for caches' images; `namespace` is GKM's own, with the configuration's Secrets."""

    secrets: Secrets
    registries: Registries
    namespace: str

    def credentials(self, image: str, namespace: str | None, names: Sequence[str]) -> Credentials | None:
        """Return the credentials for an image: from the Secrets `names` of the namespace, then from the configuration.

        Of the configuration's Secrets, only those for the image's registry and its mirrors are read, so that a missing
        Secret of another host does not affect this cache. None if the cache and the configuration name no Secret.

        Raises:
            GKMError: as Secrets.data and Reference.parse; UNAUTHORIZED for a Secret without credentials.
        """
        registry = Reference.parse(image).registry
        found = list(self._configs(registry, namespace, names))
        return Keyring(found) if found else None

    def _configs(self, registry: str, namespace: str | None, names: Sequence[str]) -> Iterator[DockerConfig]:
        for name in dict.fromkeys(names):
            yield self._config(namespace or self.namespace, name)
        secrets = (self.registries.host(source).credentials_secret for source in self.registries.sources(registry))
        for name in dict.fromkeys(filter(None, secrets)):
            yield self._config(self.namespace, name)

    def _config(self, namespace: str, name: str) -> DockerConfig:
        data = self.secrets.data(namespace, name)
        what = f"Secret {namespace}/{name}"
        raw = next((data[key] for key in KEYS if key in data), None)
        if raw is None:
            raise GKMError(
                Reason.UNAUTHORIZED,
                f"{what} holds no credentials of registries: it lacks the keys {', '.join(KEYS)}",
                f"delete it, and make it with `kubectl create secret docker-registry {name} -n {namespace} "
                "--from-file=.dockerconfigjson=FILE`",
            )
        try:
            decoded = base64.b64decode(raw, validate=True)
        except (binascii.Error, ValueError) as error:
            raise GKMError(Reason.UNAUTHORIZED, f"{what} is not base64", "make it again") from error
        return parse(decoded, what)


class _Entry(Struct):
    auth: str = ""
    username: str = ""
    password: str = ""
    identitytoken: str = ""


class _File(Struct, rename="camel"):
    auths: dict[str, _Entry] | None = None
    creds_store: str = ""
    cred_helpers: dict[str, str] = msgspec.field(default_factory=dict)


def parse(raw: bytes, what: str = "the credentials") -> DockerConfig:
    """Parse a .dockerconfigjson, a config.json or an old .dockercfg; error messages call it `what`.

    Raises:
        GKMError: UNAUTHORIZED; the message names the entry and no secret.
    """
    if len(raw) > MAX_CONFIG_BYTES:
        raise _unreadable(what, f"it has more than {MAX_CONFIG_BYTES} bytes")
    try:
        json_limits.check_objects(raw)
        file = msgspec.json.decode(raw, type=_File)
        auths = _old_form(raw) if file.auths is None else file.auths
    except (msgspec.MsgspecError, json_limits.TooManyValues, UnicodeDecodeError, RecursionError) as error:
        raise _unreadable(what, f"it is not in docker's format: {str(error)[:200]}") from error
    if len(auths) + len(file.cred_helpers) > MAX_ENTRIES:
        raise _unreadable(what, f"it has more than {MAX_ENTRIES} entries")
    logins = {server: _login(server, value, what) for server, value in auths.items()}
    # A helper knows the login of an entry without one.
    entries = [AuthEntry(*split_server(server), login) for server, login in logins.items() if login != Login()]
    return DockerConfig(tuple(entries), file.creds_store, file.cred_helpers)


def _old_form(raw: bytes) -> dict[str, _Entry]:
    """Return the entries at the root of a .dockercfg; an empty mapping for a config.json without entries."""
    entries = {}
    for server, value in msgspec.json.decode(raw, type=dict[str, Raw]).items():
        if ("." in server or ":" in server or server == "localhost") and bytes(value).lstrip().startswith(b"{"):
            entries[server] = msgspec.json.decode(value, type=_Entry)
    return entries


def split_server(server: str) -> tuple[str, str, str]:
    """Return host, port and path of a server entry, without the scheme and without docker's /v1/ and /v2/.

    Each registry has one name, as in gkm.images.reference: lower-case, without port 443.
    """
    rest = server[:_MAX_SERVER]
    for scheme in _SCHEMES:
        rest = rest.removeprefix(scheme)
    authority, slash, path = rest.partition("/")
    path = slash + path
    if path.startswith(_API_PREFIXES):
        path = path[3:]
    host, colon, port = authority.rpartition(":")
    if not colon or not port.isdigit():
        host, port = authority, ""
    return host.lower(), "" if port == "443" else port, "" if path == "/" else path


def _login(server: str, value: _Entry, what: str) -> Login:
    user, password = value.username, value.password
    if value.auth:
        user, password = _decoded(server, value.auth, what)
    if max(map(len, (user, password, value.identitytoken))) > MAX_SECRET_CHARACTERS:
        raise _unreadable(what, f"the entry of {server[:100]!r} is too long")
    return Login(user, password, value.identitytoken)


def _decoded(server: str, auth: str, what: str) -> tuple[str, str]:
    """Return user and password from base64, whose padding may be missing (as the kubelet accepts)."""
    try:
        stripped = auth.rstrip("=\r\n")
        text = base64.b64decode(stripped + "=" * (-len(stripped) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        text = ""
    user, colon, password = text.partition(":")
    if not colon:
        raise _unreadable(what, f"auth of {server[:100]!r} is not base64 of user:password")
    return user, password.strip("\x00")  # some versions of docker padded passwords with NULs


def _unreadable(what: str, detail: str) -> GKMError:
    return GKMError(Reason.UNAUTHORIZED, f"{what} cannot be used: {detail}", "log in again, or make the Secret again")


class Keyring:
    """Credentials from several files or Secrets, such as all pull secrets of a cache, in order. Immutable."""

    def __init__(self, configs: Iterable[DockerConfig] = ()) -> None:
        found = [entry for config in configs for entry in config.entries]
        self._entries = sorted(found, key=lambda entry: entry.key, reverse=True)  # stable: Secrets keep their order

    def logins(self, registry: str, repository: str) -> Sequence[Login]:
        """Return the logins that match a repository, the most specific first; an empty list without any."""
        host, port, _ = split_server(registry)
        fitting = [entry.login for entry in self._entries if _matches(entry, host, port, f"/{repository}")]
        if fitting or registry != DOCKER_HUB:
            return fitting
        return [entry.login for entry in self._entries if entry.key == _DOCKER_HUB_KEY]


def _matches(entry: AuthEntry, host: str, port: str, path: str) -> bool:
    patterns, labels = entry.host.split("."), host.split(".")
    return (
        entry.port == port
        and len(patterns) == len(labels)
        and path.startswith(entry.path)
        and all(map(_label_matches, labels, patterns))
    )


def _label_matches(label: str, pattern: str) -> bool:
    """Return whether a label matches a pattern. Only `*` is a wildcard: for the kubelet no host contains `?` or `[`."""
    first, *rest = pattern.split("*")
    if not rest:
        return label == pattern
    *middle, last = rest
    if not label.startswith(first) or not label.endswith(last) or len(label) < len(first) + len(last):
        return False
    position, end = len(first), len(label) - len(last)
    for part in middle:
        found = label.find(part, position, end)
        if found < 0:
            return False
        position = found + len(part)
    return True
