"""Image references: `registry/repository:tag@digest`, as distribution/reference defines them."""

import re
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from gkm.api.errors import GKMError, Reason
from gkm.hoststate import names

MAX_LENGTH = 525
"""Limit of characters: 255 for the name, 128 for the tag, the rest for the digest and separators."""

_DEFAULT_REGISTRY = "docker.io"
_ALIASES = frozenset({"index.docker.io", "registry-1.docker.io", "docker.io"})
_HOST_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"(?:{_HOST_LABEL}(?:\.{_HOST_LABEL})*|\[[0-9a-fA-F:]{{2,39}}\])(?::[0-9]{{1,5}})?", re.ASCII)
_PATH_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_PATH_COMPONENT}(?:/{_PATH_COMPONENT})*", re.ASCII)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", re.ASCII)
_MAX_REPOSITORY = 255


@dataclass(frozen=True, slots=True)
class Reference:
    """A name of an image in a registry; with a digest it names one content forever, with a tag only the current one."""

    registry: str
    repository: str
    tag: str | None = None
    digest: str | None = None

    @classmethod
    def parse(cls, text: str) -> "Reference":
        """Return the reference in `text`. A short name is on docker.io; without tag and digest the tag is `latest`.

        Raises:
            GKMError: INVALID_REFERENCE.
        """
        if len(text) > MAX_LENGTH:
            raise _invalid(text, f"longer than {MAX_LENGTH} characters")
        if "://" in text:
            raise _invalid(text, "leave out the scheme, such as https://")
        rest, separator, digest_text = text.partition("@")
        digest = _digest(text, digest_text) if separator else None
        registry, path = _split_host(rest)
        # A colon after the last slash separates the tag; a colon before it separates the port.
        head, slash, last = path.rpartition("/")
        last, separator, tag_text = last.partition(":")
        repository = f"{head}{slash}{last}"
        if registry == _DEFAULT_REGISTRY and "/" not in repository and repository:
            repository = f"library/{repository}"
        if not _REPOSITORY.fullmatch(repository) or len(repository) > _MAX_REPOSITORY:
            raise _invalid(text, f"{repository[:80]!r} cannot be a repository")
        if separator and not _TAG.fullmatch(tag_text):
            raise _invalid(text, f"{tag_text[:80]!r} cannot be a tag")
        tag = tag_text if separator else None if digest else "latest"
        return cls(registry, repository, tag, digest)

    def pinned(self, digest: str) -> "Reference":
        """Return the reference to the image with exactly this digest, without a tag.

        Raises:
            InvalidName: not a digest.
        """
        return replace(self, tag=None, digest=names.digest(digest))

    def tagged(self, tag: str) -> "Reference":
        """Return the reference with another tag and without a digest."""
        return replace(self, tag=tag, digest=None)

    def in_repository(self, name: str) -> "Reference":
        """Return the reference with the same tag and digest in the repository `name`; unchanged if `name` is "".

        Raises:
            GKMError: INVALID_REFERENCE.
        """
        if not name:
            return self
        other = Reference.parse(name)
        return replace(self, registry=other.registry, repository=other.repository)

    def tag_of_digest(self, suffix: str = "") -> "Reference":
        """Return the tag `sha256-<hex>` of a pinned reference, under which tools store its referrers."""
        return self.tagged(self.target.replace(":", "-") + suffix)

    @property
    def name(self) -> str:
        """Return registry and repository, which allow-lists and policies match."""
        return f"{self.registry}/{self.repository}"

    @property
    def identity(self) -> str:
        """Return the name that a legacy signature claims for the image (simple signing's `docker-reference`)."""
        return self.name

    def matches(self, pattern: str) -> bool:
        """Return whether a glob of `registries.allow` or of a policy's `images` matches this repository.

        The part before the pattern's first slash matches the host, and the part after it the repository, where `*`
        spans slashes. So a repository cannot look like the host of another tenant. A pattern without a slash matches
        hosts with all their repositories. Brackets belong to an IPv6 address.
        """
        host, slash, repository = pattern.partition("/")
        if not fnmatchcase(self.registry, host.replace("[", "[[]")):
            return False
        return not slash or fnmatchcase(self.repository, repository)

    @property
    def target(self) -> str:
        """Return the part that a registry resolves: the digest if there is one, else the tag."""
        return self.digest or self.tag or "latest"

    def __str__(self) -> str:
        """Return the reference in the usual notation."""
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.name}{tag}{digest}"


def _split_host(text: str) -> tuple[str, str]:
    host, separator, path = text.partition("/")
    is_host = separator and (_is_host(host) or host != host.lower())
    if not is_host:
        return _DEFAULT_REGISTRY, text
    if not _HOST.fullmatch(host):
        raise _invalid(text, f"{host[:80]!r} cannot be a registry")
    # Each registry has one name: policies and allow-lists match names, and another spelling must not bypass them. The
    # name must also parse as a host again: `registry:443/x` without its port would be a repository of docker.io.
    host = host.lower()
    bare = host.removesuffix(":443")
    host = bare if _is_host(bare) else host
    if not _is_host(host):
        raise _invalid(text, f"{host[:80]!r} can be a registry or a repository: a registry of one word needs its port")
    return (_DEFAULT_REGISTRY if host in _ALIASES else host), path


def _is_host(first: str) -> bool:
    return "." in first or ":" in first or first == "localhost"


def _digest(text: str, digest: str) -> str:
    try:
        return names.digest(digest)
    except names.InvalidName as error:
        raise _invalid(text, "only sha256 digests of 64 hexadecimal digits are understood") from error


def _invalid(text: str, problem: str) -> GKMError:
    return GKMError(
        Reason.INVALID_REFERENCE,
        f"{text[:120]!r} is not an image reference: {problem}",
        "write registry.example/team/cache:tag or registry.example/team/cache@sha256:…",
    )
