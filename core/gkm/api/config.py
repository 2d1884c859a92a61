"""The one configuration file (ConfigMap gkm-config), read into one frozen value; unknown keys are refused by path."""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct, field

from gkm.api.policies import Identity, Policy, Verification

__all__ = (
    "Config",
    "ConfigInvalid",
    "Identity",
    "Policy",
    "Registries",
    "RegistryHost",
    "Store",
    "Verification",
    "parse",
)


class ConfigInvalid(ValueError):
    """The file cannot be used; the message says which key and why."""


class RegistryHost(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How one registry host is reached.

    `mirrors` are hosts that are asked first, under the same repository names; what they answer is checked like any
    answer. `auth_hosts` are further hosts that may see the credentials.
    """

    mirrors: list[str] = field(default_factory=list)
    plain_http: bool = field(default=False, name="plainHTTP")
    ca_file: str = ""
    auth_hosts: list[str] = field(default_factory=list)


class Registries(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Which registries may be used (`allow`: globs over host:port/repository; empty: every one) and how."""

    allow: list[str] = field(default_factory=list)
    hosts: dict[str, RegistryHost] = field(default_factory=dict)


class Store(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Bounds of the store on a node, in bytes."""

    max_image_bytes: Annotated[int, Meta(gt=0)] = 64 << 30


class Config(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Everything that is configured."""

    verification: Verification = field(default_factory=Verification)
    registries: Registries = field(default_factory=Registries)
    store: Store = field(default_factory=Store)


def parse(text: str | bytes) -> Config:
    """Return the configuration in a YAML text; an empty text is the default.

    Raises:
        ConfigInvalid: not YAML, an unknown key, or a value of the wrong kind.
    """
    try:
        if not text.strip():
            return Config()
        return msgspec.yaml.decode(text, type=Config)
    except msgspec.ValidationError as error:
        raise ConfigInvalid(f"configuration: {error}") from error
    except msgspec.DecodeError as error:
        raise ConfigInvalid(f"configuration is not YAML: {error}") from error
