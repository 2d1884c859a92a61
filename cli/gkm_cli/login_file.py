"""Store or remove a login where docker does: with the credential helper that its config.json names, or in that file.

The password is never an argument, an environment variable or a part of a message. Other parts of the file stay.
"""

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from gkm.api.errors import GKMError, Reason
from gkm.hoststate import files
from gkm.images.registries.auth import Login
from gkm.images.registries.credentials import DOCKER_HUB, MAX_CONFIG_BYTES, Keyring, parse

from gkm_cli import helper_programs
from gkm_cli.credential_helpers import DOCKER_HUB_SERVER, config_files, helper_names, is_same_server

_PRIVATE = 0o600


def store(registry: str, login: Login, environment: Mapping[str, str] = os.environ) -> str:
    """Store a login for a registry; return where it is.

    Raises:
        GKMError: UNAUTHORIZED: the file cannot be used, or its helper failed.
        OSError: the file cannot be written.
    """
    path, server = _path(environment), DOCKER_HUB_SERVER if registry == DOCKER_HUB else registry
    raw = _read(path)
    config = parse(raw, str(path))
    content: dict[str, Any] = msgspec.json.decode(raw)
    helper = next(iter(helper_names(config, registry)), "")
    if helper:
        helper_programs.store_login(helper, server, login)
        # As docker writes it: programs that list logins find the registry.
        entry: dict[str, str] = {}
    else:
        entry = {"auth": base64.b64encode(f"{login.user}:{login.password}".encode()).decode()}
    auths = content.get("auths") or {}
    if auths.get(server) != entry:
        _write(path, {**content, "auths": {**auths, server: entry}})
    return f"docker-credential-{helper}" if helper else str(path)


def remove(registry: str, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Remove the logins for a registry, not those for repositories of it; return where they were.

    Raises:
        GKMError: UNAUTHORIZED: the file cannot be used, or its helper failed.
        OSError: the file cannot be written.
    """
    path, server = _path(environment), DOCKER_HUB_SERVER if registry == DOCKER_HUB else registry
    raw = _read(path)
    known = parse(raw, str(path))
    content: dict[str, Any] = msgspec.json.decode(raw)
    found = [
        f"docker-credential-{helper}"
        for helper in helper_names(known, registry)
        if helper_programs.erase_login(helper, server)
    ]
    auths = content.get("auths") or {}
    others = {name: entry for name, entry in auths.items() if not is_same_server(name, registry)}
    if len(others) < len(auths):
        _write(path, {**content, "auths": others})
        # An entry without content only names a registry whose login a helper has.
        found += [str(path)] if any(entry for name, entry in auths.items() if name not in others) else []
    return found


def remaining(registry: str, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the files of docker and podman that have a login for a registry; helpers are not run.

    Raises:
        GKMError: UNAUTHORIZED: a file cannot be used.
    """
    files = [path for path in config_files(environment) if path.is_file()]
    return [str(path) for path in files if Keyring([parse(_read(path), str(path))]).logins(registry, "")]


def _path(environment: Mapping[str, str]) -> Path:
    if named := environment.get("REGISTRY_AUTH_FILE"):
        return Path(named)
    home = Path(environment.get("HOME") or Path.home())
    return Path(environment.get("DOCKER_CONFIG") or home / ".docker") / "config.json"


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_CONFIG_BYTES + 1).strip() or b"{}"
    except FileNotFoundError:
        return b"{}"
    except OSError as error:
        raise GKMError(
            Reason.UNAUTHORIZED, f"{path} cannot be read: {error.strerror}", "check its owner and mode"
        ) from error


def _write(path: Path, content: dict[str, Any]) -> None:
    _replace(path, msgspec.json.format(msgspec.json.encode(content), indent=8))


def _replace(path: Path, data: bytes) -> None:
    """Replace the file in one step, for its owner only; a link stays a link."""
    target = path.resolve()
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    files.replace(target, data, mode=_PRIVATE)
