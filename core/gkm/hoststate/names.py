"""Check names from outside before they become part of a path; no other module checks them again."""

import re
from dataclasses import dataclass

# Namespaces and node names are DNS labels and subdomains (Kubernetes "Object Names and IDs").
_DNS_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
# kubelet's inline volume ids are "csi-" + 64 hex digits; others are accepted within the CSI limit of 128 bytes
# (csi.proto, "Size Limits") as long as they are one harmless path component.
_VOLUME_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}", re.ASCII)

CLUSTER_SCOPE = "_cluster-scoped"
"""Directory of ClusterGKMCaches: no namespace can have a name with an underscore."""


class InvalidName(ValueError):
    """A name is invalid, so it must not become part of a path."""


def namespace(value: str) -> str:
    """Return `value` if it is a valid name of a namespace; raise InvalidName if it is not."""
    return _checked(_DNS_LABEL, value, "a namespace")


def cache_name(value: str) -> str:
    """Return `value` if it is a valid name of a cache object.

    Raises:
        InvalidName: it is not a valid name, or contains "..".
    """
    return _subdomain(value, "a cache")


def node_name(value: str) -> str:
    """Return `value` if it is a valid name of a node; raise InvalidName if it is not."""
    return _subdomain(value, "a node")


def secret_name(value: str) -> str:
    """Return `value` if it is a valid name of a Secret; raise InvalidName if it is not."""
    return _subdomain(value, "a Secret")


def volume_id(value: str) -> str:
    """Return `value` if it is a valid id of a volume; raise InvalidName if it is not."""
    return _checked(_VOLUME_ID, value, "a volume")


def digest(value: str) -> str:
    """Return `value` if it is a sha256 digest in its canonical form.

    Raises:
        InvalidName: it is not a canonical digest (a loose check leads to bugs like containers/image CVE-2024-3727).
    """
    return _checked(_DIGEST, value, "a digest")


def is_digest(value: str) -> bool:
    """Return whether a text is a sha256 digest in its canonical form."""
    return _DIGEST.fullmatch(value) is not None


@dataclass(frozen=True, slots=True, order=True)
class CacheRef:
    """The namespace and name of a cache object; `namespace` is None for a ClusterGKMCache."""

    namespace: str | None
    name: str

    def __post_init__(self) -> None:
        if self.namespace is not None:
            namespace(self.namespace)
        cache_name(self.name)

    @property
    def kind(self) -> str:
        """Return the kind of the cache object: GKMCache or ClusterGKMCache."""
        return "ClusterGKMCache" if self.namespace is None else "GKMCache"

    @property
    def scope(self) -> str:
        """Return the name of the directory that stands for the namespace, or for cluster-wide caches."""
        return CLUSTER_SCOPE if self.namespace is None else self.namespace

    def __str__(self) -> str:
        """Return the reference for messages: `GKMCache ml-apps/llama`."""
        return f"{self.kind} {self.name}" if self.namespace is None else f"{self.kind} {self.namespace}/{self.name}"


def _subdomain(value: str, kind: str) -> str:
    if ".." in value:
        raise InvalidName(f"{quoted(value)} cannot be the name of {kind}")
    return _checked(_DNS_SUBDOMAIN, value, kind)


def _checked(pattern: re.Pattern[str], value: str, kind: str) -> str:
    if not pattern.fullmatch(value):
        raise InvalidName(f"{quoted(value)} cannot be the name of {kind}")
    return value


def quoted(value: str) -> str:
    """Return a value for a message, escaped and cut at 80 characters."""
    return repr(value if len(value) <= 80 else value[:80] + "…")  # noqa: PLR2004 -- a line a person can read
