"""Sealed directories, as the agent makes them: without a write bit, only root can remove what is in them."""

import os
from pathlib import Path


def unseal(directory: Path) -> None:
    """Give a directory and all below it their write bit back, so that any user can change or remove them."""
    for path, _, _ in os.walk(directory):
        Path(path).chmod(0o755)
