"""Image references: `registry/repository:tag@digest`, as distribution/reference defines them."""

import re
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from gkm.api.errors import GKMError, Reason
from gkm.hoststate import names

MAX_LENGTH = 525
"""GKMCache.spec.image is no longer: 255 for the name, 128 for the tag, the rest for the digest and separators."""

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
    """A place in a registry; with a digest it names one content for ever, with a tag only what is there today."""

    registry: str
    repository: str
    tag: str | None = None
    digest: str | None = None

    @classmethod
    def parse(cls, text: str) -> "Reference":
        """Return the reference in `text`; short names mean docker.io, no tag and no digest mean `latest`.

        Raises:
            GKMError: INVALID_REFERENCE.
        """
        if len(text) > MAX_LENGTH:
            raise _invalid(text, f"longer than {MAX_LENGTH} characters")
        if "://" in text:
            raise _invalid(text, "a reference has no scheme")
        rest, separator, digest_text = text.partition("@")
        digest = _digest(text, digest_text) if separator else None
        registry, path = _split_host(rest)
        # A colon behind the last slash separates the tag; one before it is a port (GKM's own rewriting trips there).
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
        """Return the reference to exactly this content.

        Raises:
            InvalidName: not a digest.
        """
        return replace(self, tag=None, digest=names.digest(digest))

    def tagged(self, tag: str) -> "Reference":
        """Return the reference to another tag of the same repository."""
        return replace(self, tag=tag, digest=None)

    def tag_of_digest(self, suffix: str = "") -> "Reference":
        """Return the tag `sha256-<hex>` of a pinned reference: where others put what is about this content."""
        return self.tagged(self.target.replace(":", "-") + suffix)

    @property
    def name(self) -> str:
        """Return registry and repository, what allow-lists and policies match."""
        return f"{self.registry}/{self.repository}"

    def matches(self, pattern: str) -> bool:
        """Return whether a glob of `registries.allow` or of a policy's `images` is about this repository.

        The host is compared with what stands before the pattern's first slash, the repository with what stands behind
        it, where `*` spans slashes: nobody's repository can look like somebody else's host. Without a slash the
        pattern is of hosts, with everything on them. The brackets of a host are those of an address.
        """
        host, slash, repository = pattern.partition("/")
        if not fnmatchcase(self.registry, host.replace("[", "[[]")):
            return False
        return not slash or fnmatchcase(self.repository, repository)

    @property
    def target(self) -> str:
        """Return what to ask the registry for: the digest where there is one."""
        return self.digest or self.tag or "latest"

    def __str__(self) -> str:
        """Return the reference as a person writes it."""
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
    # One registry has one name: policies and allow-lists match names, and another spelling must not slip past them.
    # A name must also read as a host when it is written again: `registry:443/x` without its port is docker.io's.
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


def _invalid(text: str, why: str) -> GKMError:
    return GKMError(
        Reason.INVALID_REFERENCE,
        f"{text[:120]!r} is not an image reference: {why}",
        "write registry.example/team/cache:tag or registry.example/team/cache@sha256:…",
    )
