"""The configuration file (ConfigMap gkm-config) as one frozen value; an error names the path of an unknown key."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from gkm.api import documents
from gkm.api.capture_settings import Capture, CapturedCaches, CaptureSigning
from gkm.api.config_errors import explained
from gkm.api.fabric_settings import Fabric
from gkm.api.kernel_caches import KServe
from gkm.api.network_settings import Network
from gkm.api.policies import Identity, Policy, Verification
from gkm.api.task_group_settings import TaskGroups
from gkm.api.topology_settings import Packing, Topology

__all__ = (
    "Capture",
    "CaptureSigning",
    "CapturedCaches",
    "Config",
    "ConfigInvalid",
    "Fabric",
    "Identity",
    "KServe",
    "Network",
    "Packing",
    "Policy",
    "Registries",
    "RegistryHost",
    "Store",
    "TaskGroups",
    "Topology",
    "Verification",
    "load",
    "parse",
    "parse_verification",
    "read_file",
)

MAX_BYTES = 4 << 20
T = TypeVar("T")
_PREFIX: Final = "GKM_CAPTURE_"
VARIABLES: Final = {
    "GKM_CAPTURE_MODE": ("capture", "mode"),
    "GKM_CAPTURE_REGISTRY": ("capture", "registry"),
    "GKM_CAPTURE_CREDENTIALS_SECRET": ("capture", "credentialsSecret"),
    "GKM_CAPTURE_KEY_FILE": ("capture", "signing", "keyFile"),
    "GKM_CAPTURE_KEYLESS": ("capture", "signing", "keyless"),
    "GKM_CAPTURE_BYTES_PER_SECOND": ("capture", "bytesPerSecond"),
    "GKM_CAPTURE_MIN_FREE_PERCENT": ("capture", "minFreePercent"),
    "GKM_CAPTURE_SETTLED_SECONDS": ("capture", "settledSeconds"),
}
"""The variables, each with the path of the scalar that it overrides: only the section `capture` has them.

The ConfigMap is the same on every node; a registry, a key or the mode may differ on some. Other sections have no such
variables: most of their values are lists and maps, and one place for each setting is easier to audit.
"""


class ConfigInvalid(ValueError):
    """The configuration is invalid; the message names the key and the reason."""


class RegistryHost(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How GKM connects to one registry host.

    GKM tries the hosts in `mirrors` first, with the same repository names, by containerd's mirror protocol (`ns`); it
    checks their content like any other. `auth_hosts` are further hosts that may receive the credentials.
    `credentials_secret` names a Secret with credentials (.dockerconfigjson) in GKM's own namespace. GKM uses it for
    every cache whose image is on this host, or on a host that this host mirrors.
    """

    mirrors: list[str] = field(default_factory=list)
    plain_http: bool = field(default=False, name="plainHTTP")
    ca_file: str = ""
    auth_hosts: list[str] = field(default_factory=list)
    credentials_secret: str = ""


class Registries(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The allowed registries, and how GKM connects to them.

    `allow` lists globs over host:port/repository; an empty list allows every registry. Before the first slash `*`
    matches a part of the host and port, and brackets belong to an IPv6 address. After the first slash `*` matches
    slashes too. A glob without a slash matches hosts with all their repositories: `registry.example`,
    `*.corp.example`, or `*` for everything.
    """

    allow: list[str] = field(default_factory=list)
    hosts: dict[str, RegistryHost] = field(default_factory=dict)

    def sources(self, registry: str) -> list[str]:
        """Return the hosts to read a registry's content from, in order: its mirrors, then the registry itself."""
        return [*self.host(registry).mirrors, registry]

    def host(self, name: str) -> RegistryHost:
        """Return the connection settings of a host; the defaults if the configuration does not name it."""
        return self.hosts.get(name, RegistryHost())


class Store(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Limits of the store on a node, in bytes and seconds.

    `max_bytes` limits the files of all caches together; without it only the disk does. The agent retains an entry that
    no cache names and no pod mounts for `keep_seconds`. Below `min_free_percent` of free disk space the agent evicts
    entries that no pod mounts and no cache of this node uses, and fetches no new ones. kubelet evicts pods below 10 %
    (nodefs.available) and 15 % (imagefs.available): with the default of 20 % the agent acts first. The agent compares
    the content of every entry with its hashes once in `check_interval` seconds; 0 disables the check.
    """

    max_image_bytes: Annotated[int, Meta(gt=0)] = 64 << 30
    max_bytes: Annotated[int, Meta(gt=0)] | None = None
    keep_seconds: Annotated[float, Meta(ge=0)] = 0.0
    min_free_percent: Annotated[float, Meta(ge=0, le=90)] = 20.0
    check_interval: Annotated[float, Meta(ge=0)] = 86_400.0


class Config(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The whole configuration of GKM (ConfigMap gkm-config).

    `delivery` is how pods that name a cache by a label get it: by volumes of the CSI driver, by image volumes, or with
    `auto` by image volumes while the cluster has no CSIDriver csi.gkm.io.
    """

    verification: Verification = field(default_factory=Verification)
    registries: Registries = field(default_factory=Registries)
    store: Store = field(default_factory=Store)
    fabric: Fabric = field(default_factory=Fabric)
    capture: Capture = field(default_factory=Capture)
    topology: Topology = field(default_factory=Topology)
    packing: Packing = field(default_factory=Packing)
    network: Network = field(default_factory=Network)
    task_groups: TaskGroups = field(default_factory=TaskGroups)
    kserve: KServe = field(default_factory=KServe)
    delivery: Literal["csi", "image", "auto"] = "csi"


def load(path: Path | None, environment: Mapping[str, str] = os.environ) -> Config:
    """Return the configuration in a file; without a file, the default, which refuses every unsigned image.

    VARIABLES override the file.

    Raises:
        ConfigInvalid: the file or a variable cannot be read or used; the message names it.
    """
    where = f"configuration {path}"
    found = Config() if path is None else parse(read_file(path, where), where)
    given = {name: value for name, value in environment.items() if name.startswith(_PREFIX)}
    for name, value in sorted(given.items()):
        if name not in VARIABLES:
            raise ConfigInvalid(f"environment variable {name} is unknown; known are {', '.join(VARIABLES)}")
        found = _overridden(found, name, value)
    return found


def _overridden(config: Config, variable: str, value: str) -> Config:
    values: dict[str, Any] = msgspec.to_builtins(config)
    *path, key = VARIABLES[variable]
    section = values
    for step in path:
        section = section[step]
    section[key] = value
    try:
        return msgspec.convert(values, type=Config, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigInvalid(f"environment variable {variable}: {explained(error, Config)}") from error


def read_file(path: Path, where: str) -> bytes:
    """Return the bytes of a configuration file. Errors begin with `where`.

    Raises:
        ConfigInvalid: the file cannot be read, or is larger than MAX_BYTES.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigInvalid(f"{where}: {error.strerror}; check its name and mode") from error
    if len(text) > MAX_BYTES:
        raise ConfigInvalid(f"{where}: larger than {MAX_BYTES} bytes")
    return text


def parse(text: str | bytes, where: str = "configuration") -> Config:
    """Return the configuration in a YAML text; an empty text gives the defaults. Errors begin with `where`.

    Raises:
        ConfigInvalid: the text is not YAML, or has an unknown key or a value of the wrong kind.
    """
    return _read(text, Config, where) if text.strip() else Config()


def parse_verification(text: str | bytes, where: str = "verification") -> Verification:
    """Return the section `verification` of the configuration from a separate YAML text; raises as `parse` does."""
    return _read(text, Verification, where)


def _read(text: str | bytes, kind: type[T], what: str) -> T:
    try:
        return documents.decode(text, kind, aliases=True)
    except msgspec.ValidationError as error:
        raise ConfigInvalid(f"{what}: {explained(error, kind)}") from error
    except documents.InvalidYAML as error:
        raise ConfigInvalid(f"{what}: it is not YAML: {error}") from error
