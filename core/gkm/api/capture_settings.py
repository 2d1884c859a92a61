"""The section `capture` of the configuration: what happens to the files that pods add to private volumes."""

from fnmatch import fnmatchcase
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

SLOWEST_BYTES_PER_SECOND = 256 << 10
"""A registry client gives an upload up as stalled below 64 KiB a second (gkm.images.registries.transport.Limits)."""

LONGEST_AGE_SECONDS = 100 * 365 * 86_400.0
"""Limit in seconds (about 1000 years) so that a date that long ago can be computed."""

_Glob = Annotated[str, Meta(max_length=253)]
_Path = Annotated[str, Meta(max_length=1024, pattern=r"^(/[^\x00]*)?\Z")]
_URL = Annotated[str, Meta(max_length=1024, pattern=r"^(https?://[!-~]+)?\Z")]
# The place of images: host[:port] and the beginning of their repositories.
_Place = Annotated[str, Meta(max_length=300, pattern=r"^([a-z0-9.-]+(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*)?\Z")]


class CaptureSigning(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The signer of captured images: a private key in a file, or an identity token from the agent's environment.

    `key_file` is read at each signature, so that a new key needs no restart; COSIGN_PASSWORD has its password. Keyless
    signing needs `trusted_root`, the path of the trusted_root.json that verifies the certificates of `fulcio_url`.
    """

    key_file: _Path = ""
    keyless: bool = False
    trusted_root: _Path = ""
    fulcio_url: _URL = field(default="", name="fulcioURL")
    rekor_url: _URL = field(default="", name="rekorURL")

    def __post_init__(self) -> None:
        """Refuse a key together with keyless signing, and keyless settings without `keyless`."""
        if self.key_file and self.keyless:
            raise ValueError("`keyFile` and `keyless` exclude each other")
        if self.keyless and not self.trusted_root:
            raise ValueError("`keyless` needs `trustedRoot`, the path of a trusted_root.json")
        if not self.keyless and (self.trusted_root or self.fulcio_url or self.rekor_url):
            raise ValueError("`trustedRoot`, `fulcioURL` and `rekorURL` need `keyless: true`")


class CapturedCaches(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The caches that the controllers register for captures, and how long they and their images stay.

    For each namespace and hardware key (backend, architecture, major version of the driver, runtime and its version),
    the `versions` newest captures have a cache until they are `max_age` seconds old. If either is 0, GKM registers no
    captures. A capture that pods mount, or that a cache of a user names, stays longer.

    A capture is a GKMCache of the namespace of its pod. Captures of the `cluster_namespaces` (globs) are
    ClusterGKMCaches instead, which pods of all namespaces may mount.
    """

    max_age: Annotated[float, Meta(ge=0, le=LONGEST_AGE_SECONDS)] = 30 * 86_400.0
    versions: Annotated[int, Meta(ge=0)] = 10
    cluster_namespaces: Annotated[list[_Glob], Meta(max_length=1024)] = field(default_factory=list)

    def are_for_cluster(self, namespace: str) -> bool:
        """Return whether captures of pods in a namespace become ClusterGKMCaches, which all namespaces can mount."""
        return any(fnmatchcase(namespace, pattern) for pattern in self.cluster_namespaces)


class Capture(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The files that pods add to private volumes: which volumes are captured, and where their images go.

    `mode`: `auto` captures every private volume whose attribute `capture` is not "false", `request` only volumes with
    "true", and `off` captures no volume. Without `registry` and a signer no capture leaves a node, and `auto` captures
    as `request` does. Images go to `registry`/<namespace of the pod>/<runtime>, at most `bytes_per_second` bytes a
    second from each node.

    `credentials_secret` names a Secret with credentials (.dockerconfigjson) in GKM's own namespace, for pushes alone.
    Without it GKM uses the credentials of `registries.hosts`.

    The agent retains captures for `retention` seconds, and at most `max_bytes` of them together. `min_free_percent` of
    the disk stays free, of bytes and of inodes. With the mode `auto` and a destination, a volume to which no program
    wrote for `settled_seconds` is captured while its pod runs; 0 waits for the end of the pod. `caches` is about the
    objects that the controllers make of captures.
    """

    mode: Literal["auto", "request", "off"] = "auto"
    registry: _Place = ""
    credentials_secret: Annotated[str, Meta(max_length=253)] = ""
    signing: CaptureSigning = field(default_factory=CaptureSigning)
    bytes_per_second: Annotated[int, Meta(ge=SLOWEST_BYTES_PER_SECOND)] = 20 << 20
    retention: Annotated[float, Meta(gt=0)] = 7 * 86_400.0
    max_bytes: Annotated[int, Meta(gt=0)] = 10 << 30
    min_free_percent: Annotated[float, Meta(ge=0, le=90)] = 20.0
    settled_seconds: Annotated[float, Meta(ge=0, le=30 * 86_400.0)] = 120.0
    caches: CapturedCaches = field(default_factory=CapturedCaches)

    @property
    def is_pushed(self) -> bool:
        """Return whether images of captures are pushed: a registry and a signer are configured."""
        return self.mode != "off" and bool(self.registry and (self.signing.key_file or self.signing.keyless))
