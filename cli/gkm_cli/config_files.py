"""Configuration files that a person names."""

from pathlib import Path

from gkm_cli.output import UsageError

MAX_BYTES = 4 << 20


def read(path: Path) -> bytes:
    """Return the bytes of a configuration file.

    Raises:
        OSError: it cannot be read.
        WrongUsage: it is too long for one.
    """
    with path.open("rb") as file:
        found = file.read(MAX_BYTES + 1)
    if len(found) > MAX_BYTES:
        raise UsageError(f"{path} has more than {MAX_BYTES} bytes", "name a configuration file")
    return found
