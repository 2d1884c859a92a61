"""Environment variables that override scalars of the configuration: only the section `capture` has them.

The ConfigMap is the same on every node; a registry, a key or the mode may differ on some. Other sections have no such
variables: most of their values are lists and maps, and one place for each setting is easier to audit.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from gkm.api.config_errors import explained

PREFIX: Final = "GKM_CAPTURE_"
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
"""The variables, each with the path of the key that it replaces."""


class InvalidVariable(ValueError):
    """An environment variable with GKM's prefix is unknown or has an invalid value; the message names it."""


T = TypeVar("T", bound=msgspec.Struct)


def overridden(config: T, environment: Mapping[str, str]) -> T:
    """Return the configuration with the values of environment variables; the same object if no variable is set.

    Raises:
        InvalidVariable: a variable is unknown or invalid.
    """
    given = {name: value for name, value in environment.items() if name.startswith(PREFIX)}
    for name, value in sorted(given.items()):
        if name not in VARIABLES:
            raise InvalidVariable(f"environment variable {name} is unknown; known are {', '.join(VARIABLES)}")
        config = _with(config, name, value)
    return config


def _with(config: T, name: str, value: str) -> T:
    kind = type(config)
    values: dict[str, Any] = msgspec.to_builtins(config)
    *path, key = VARIABLES[name]
    section = values
    for step in path:
        section = section[step]
    section[key] = value
    try:
        return msgspec.convert(values, type=kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidVariable(f"environment variable {name}: {explained(error, kind)}") from error
