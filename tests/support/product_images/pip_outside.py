"""What a build in a container must know to install packages as this machine does: the index, and whom to trust."""

import ast
import configparser
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from support.host.waiting import scaled

CARRIED = frozenset({"index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "default-timeout", "cert"})
"""The settings that a container can follow; others name things that only the machine has."""
TRUST = "/etc/ssl/certs/ca-certificates.crt"
"""Where the file of `cert` is in the container."""


def settings(listed: Iterable[str]) -> dict[str, str]:
    """Return what counts of the lines of `pip config list`: the environment wins over files, as with pip itself."""
    found: dict[str, str] = {}
    # Stable: those of the environment come last, the others keep their order.
    for line in sorted(listed, key=lambda line: line.startswith(":env:")):
        name, _, value = line.partition("=")
        key = name.rpartition(".")[2]
        if key in CARRIED:
            found[key] = str(ast.literal_eval(value))
    return found


def volumes(directory: Path) -> list[str]:
    """Return `from:to:ro` of each file to mount, having written pip's configuration into `directory`."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=scaled(60)).stdout
    found = settings(listed.splitlines())
    mounted = []
    if trusted := found.get("cert"):
        mounted.append(f"{Path(trusted).resolve()}:{TRUST}:ro")
        found["cert"] = TRUST
    file = directory / "pip.conf"
    written = configparser.RawConfigParser()
    written["global"] = found
    with file.open("w", encoding="utf-8") as output:
        written.write(output)
    return [*mounted, f"{file}:/etc/pip.conf:ro"]
