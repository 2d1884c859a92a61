"""The one configuration file (ConfigMap gkm-config), read into one frozen value; unknown keys are refused by path."""

from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from gkm.api import documents
from gkm.api.config_errors import explained
from gkm.api.fabric_settings import Fabric
from gkm.api.policies import Identity, Policy, Verification
from gkm.api.topology_settings import Packing, Topology

__all__ = (
    "Capture",
    "Config",
    "ConfigInvalid",
    "Fabric",
    "Identity",
    "Packing",
    "Policy",
    "Registries",
    "RegistryHost",
    "Store",
    "Topology",
    "Verification",
    "load",
    "parse",
    "parse_verification",
    "read_file",
)

MAX_BYTES = 4 << 20
T = TypeVar("T")


class ConfigInvalid(ValueError):
    """The file cannot be used; the message says which key and why."""


class RegistryHost(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How one registry host is reached.

    `mirrors` are hosts that are asked first, under the same repository names; what they answer is checked like any
    answer. `auth_hosts` are further hosts that may see the credentials. `credentials_secret` is the name of a Secret
    in GKM's own namespace whose credentials (.dockerconfigjson) every cache may use whose image is on this host, or on
    one that this host mirrors.
    """

    mirrors: list[str] = field(default_factory=list)
    plain_http: bool = field(default=False, name="plainHTTP")
    ca_file: str = ""
    auth_hosts: list[str] = field(default_factory=list)
    credentials_secret: str = ""


class Registries(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Which registries may be used, and how.

    `allow` are globs over host:port/repository; none of them means every registry. Before the first slash `*` stands
    for a part of the host and port, and brackets are those of an IPv6 address; behind it `*` spans slashes. Without a
    slash a glob is of hosts and of all that is there: `registry.example`, `*.corp.example`, and `*` for everything.
    """

    allow: list[str] = field(default_factory=list)
    hosts: dict[str, RegistryHost] = field(default_factory=dict)

    def sources(self, registry: str) -> list[str]:
        """Return the hosts that are asked for what a registry has, in their order: its mirrors, then itself."""
        configured = self.hosts.get(registry)
        return [*(configured.mirrors if configured else []), registry]


class Store(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Bounds of the store on a node, in bytes and seconds.

    `max_bytes` bounds the files of all caches together, None leaves it to the disk. `keep_seconds` is how long an entry
    stays that no cache names any more. Below `min_free_percent` of free disk what can be fetched again goes, and
    nothing new is fetched: kubelet evicts pods below 10 % (nodefs.available) and 15 % (imagefs.available), so this
    comes first. Every entry's content is compared with its hashes once in `check_interval` seconds; 0 is never.
    """

    max_image_bytes: Annotated[int, Meta(gt=0)] = 64 << 30
    max_bytes: Annotated[int, Meta(gt=0)] | None = None
    keep_seconds: Annotated[float, Meta(ge=0)] = 0.0
    min_free_percent: Annotated[float, Meta(ge=0, le=90)] = 20.0
    check_interval: Annotated[float, Meta(ge=0)] = 86_400.0


class Capture(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What is kept on a node of what pods added to volumes that ask for it (the attribute `capture`).

    For `retention` seconds, and of `max_bytes` together at most; 0 of either keeps nothing.
    """

    retention: Annotated[float, Meta(ge=0)] = 7 * 86_400.0
    max_bytes: Annotated[int, Meta(ge=0)] = 10 << 30


class Config(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Everything that is configured."""

    verification: Verification = field(default_factory=Verification)
    registries: Registries = field(default_factory=Registries)
    store: Store = field(default_factory=Store)
    fabric: Fabric = field(default_factory=Fabric)
    capture: Capture = field(default_factory=Capture)
    topology: Topology = field(default_factory=Topology)
    packing: Packing = field(default_factory=Packing)


def load(path: Path | None) -> Config:
    """Return the configuration in a file; without a file, the default, which refuses every unsigned image.

    Raises:
        ConfigInvalid: the file cannot be read or used; the message names it.
    """
    if path is None:
        return Config()
    where = f"configuration {path}"
    return parse(read_file(path, where), where)


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
    """Return the configuration in a YAML text; an empty text is the default. Errors begin with `where`.

    Raises:
        ConfigInvalid: not YAML, an unknown key, or a value of the wrong kind.
    """
    return _read(text, Config, where) if text.strip() else Config()


def parse_verification(text: str | bytes, where: str = "verification") -> Verification:
    """Return the section `verification` of a configuration, in a YAML text of its own; raises as `parse` does."""
    return _read(text, Verification, where)


def _read(text: str | bytes, kind: type[T], what: str) -> T:
    try:
        return documents.decode(text, kind, aliases=True)
    except msgspec.ValidationError as error:
        raise ConfigInvalid(f"{what}: {explained(error, kind)}") from error
    except documents.InvalidYAML as error:
        raise ConfigInvalid(f"{what}: it is not YAML: {error}") from error
