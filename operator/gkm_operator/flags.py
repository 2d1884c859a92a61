"""Flags whose defaults come from the environment: --log-level is also GKM_LOG_LEVEL. A flag wins."""

import argparse
import os
from pathlib import Path
from typing import Any

from gkm.api.config import Config, ConfigInvalid, parse
from gkm.probes import addresses

PREFIX = "GKM_"
MAX_CONFIG_BYTES = 4 << 20


def add(parser: argparse.ArgumentParser, flag: str, *, default: str = "", **options: Any) -> None:  # noqa: ANN401 -- argparse's
    """Add a flag and its twin in the environment; `--tls-cert` is GKM_TLS_CERT."""
    name = PREFIX + flag.removeprefix("--").upper().replace("-", "_")
    options["help"] = f"{options.get('help', '')} (${name}; default: {default or 'none'})".strip()
    parser.add_argument(flag, default=os.environ.get(name, default), **options)


def address(text: str) -> tuple[str, int]:
    """Return host and port of `host:port`; `:port` means every address of this machine.

    Raises:
        argparse.ArgumentTypeError: it is neither.
    """
    try:
        return addresses.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def level(text: str) -> str:
    """Return a level of logging; `choices` would not look at what comes from the environment.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    if text not in ("debug", "info", "warning", "error"):
        raise argparse.ArgumentTypeError(f"{text!r} is not debug, info, warning or error")
    return text


def read_config(path: str) -> Config:
    """Return the configuration in a file; no file is the default, which refuses everything unsigned.

    Raises:
        ConfigInvalid: the file cannot be read or used.
    """
    return parse(read_file(path), f"configuration {path}") if path else Config()


def read_file(path: str) -> bytes:
    """Return the bytes of a configuration file.

    Raises:
        ConfigInvalid: the file cannot be read, or is too long.
    """
    try:
        with Path(path).open("rb") as file:
            text = file.read(MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise ConfigInvalid(f"configuration {path}: {error.strerror}") from error
    if len(text) > MAX_CONFIG_BYTES:
        raise ConfigInvalid(f"configuration {path} is longer than {MAX_CONFIG_BYTES} bytes")
    return text
